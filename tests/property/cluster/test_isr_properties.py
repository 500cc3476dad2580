"""Whatever is fetched, proposed, committed, refused and lost: what the leader counts as committed is on each replica
that the controller may take for in sync.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.replicas.leader import Leader
from ottla.cluster.image import PartitionImage
from ottla.cluster.isr import ABANDONED_ERRORS, IsrProposal
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R2")

REPLICAS = (1, 2, 3, 4)
LAG_MS = 30_000
REFUSALS = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.REQUEST_TIMED_OUT)

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), st.sampled_from(REPLICAS[1:]), st.integers(0, 60)),
    st.tuples(st.just("wait"), st.integers(1, 40_000)),
    st.tuples(st.just("check lag")),
    st.tuples(st.just("commit"), st.booleans()),
    st.tuples(st.just("refuse"), st.sampled_from(REFUSALS)),
    st.tuples(st.just("dies or returns"), st.sampled_from(REPLICAS[1:])),
)


class World:
    """A leader, its followers, and the controller's truth about the ISR."""

    def __init__(self) -> None:
        self.leader = Leader(PartitionImage(1, 0, REPLICAS, (1, 2, 3)), 0, 0, 0.0)
        self.now_ms = 0.0
        self.end = 0
        self.high_watermark = 0
        self.alive = set(REPLICAS)
        #: The controller's ISR and its version; a proposal that is on its way, or whose answer is.
        self.isr = frozenset((1, 2, 3))
        self.version = 0
        self.sent: IsrProposal | None = None

    def run(self, step: tuple[object, ...]) -> None:
        kind, *values = step
        replicas = self.leader.replicas
        if kind == "append":
            (size,) = values
            assert isinstance(size, int)
            self.end += size
        elif kind == "fetch":
            replica, share = values
            assert isinstance(replica, int)
            assert isinstance(share, int)
            follower = replicas.followers[replica]
            # What a replica has once it keeps: it goes forward, up to the end.
            offset = min(self.end, max(follower.end_offset, 0) + share)
            follower.fetched(offset, 0, self.end, self.now_ms)
            self.sent = replicas.expansion(replica, self.high_watermark, self.alive.__contains__) or self.sent
        elif kind == "wait":
            (by_ms,) = values
            assert isinstance(by_ms, int)
            self.now_ms += by_ms
        elif kind == "check lag":
            self.sent = replicas.shrink(self.end, self.now_ms, LAG_MS) or self.sent
        elif kind == "dies or returns":
            (replica,) = values
            assert isinstance(replica, int)
            self.alive ^= {replica}
        elif self.sent is not None:
            self.answer(self.sent, kind == "commit", values[0])

    def answer(self, proposal: IsrProposal, is_committed: bool, detail: object) -> None:
        replicas = self.leader.replicas
        if is_committed:
            if self.isr != frozenset(proposal.isr):
                self.isr, self.version = frozenset(proposal.isr), self.version + 1
            if not detail:  # the answer is lost
                assert replicas.refused(proposal, ErrorCode.NETWORK_EXCEPTION)
                return
            assert replicas.accepted(proposal, 0, self.version, tuple(self.isr))
            self.sent = None
            return
        assert isinstance(detail, ErrorCode)
        if detail in ABANDONED_ERRORS and self.isr == frozenset(proposal.isr):
            return  # a controller never says so of what it has committed
        if not replicas.refused(proposal, detail):
            self.sent = None

    def check(self) -> None:
        before = self.high_watermark
        self.high_watermark = self.leader.high_watermark(
            before, self.end, self.end, 2, self.now_ms, LAG_MS, self.alive.__contains__
        )
        self.leader.replicas.check_invariants()
        assert before <= self.high_watermark <= self.end
        followers = self.leader.replicas.followers
        for replica in self.isr - {1}:
            assert followers[replica].end_offset >= self.high_watermark or self.high_watermark == 0, (
                f"replica {replica} would lead without committed records"
            )
        assert len(self.leader.isr) >= 2 or self.high_watermark == before


@given(st.lists(STEPS, max_size=120))
def test_committed_records_are_on_every_replica_that_may_be_in_sync(steps: list[tuple[object, ...]]) -> None:
    world = World()
    for step in steps:
        world.run(step)
        world.check()
