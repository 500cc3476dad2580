"""A member of a classic group, step by step: what it sends when, and what it makes of every answer."""

from __future__ import annotations

import pytest

from ottla.client.consumer.membership import (
    NO_GENERATION,
    Assign,
    ClientState,
    DropCoordinator,
    FindCoordinator,
    Generation,
    MemberSettings,
    Membership,
    MemberState,
    Send,
)
from ottla.client.errors import BrokerError, ClientError, ConnectionLostError, FencedInstanceIdError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SETTINGS = MemberSettings("g", session_timeout_ms=10_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=60_000)
PROTOCOLS = [("range", b"subscription")]


class Bench:
    """A member, the time, and what it has sent."""

    def __init__(self, settings: MemberSettings = SETTINGS) -> None:
        self.member = Membership(settings)
        self.now_ms = 1_000.0
        self.member.start(self.now_ms)

    def take(self) -> list[object]:
        """What it wants done."""
        actions = [action.request if isinstance(action, Send) else action for action in self.member.actions]
        self.member.actions.clear()
        self.member.check_invariants()
        return actions

    def pass_time(self, by_ms: float) -> None:
        """Time passes, with a wake at every deadline."""
        until = self.now_ms + by_ms
        while (due := self.member.next_deadline_ms(self.now_ms)) is not None and due <= until:
            self.now_ms = max(self.now_ms, due)
            before = len(self.member.actions)
            self.member.wake(self.now_ms)
            if len(self.member.actions) == before and self.member.next_deadline_ms(self.now_ms) == due:
                break
        self.now_ms = until

    def find(self) -> None:
        """The coordinator is found."""
        assert self.take() == [FindCoordinator()]
        self.member.coordinator_found(self.now_ms)

    def find_again(self) -> None:
        """The coordinator is lost, and found."""
        assert self.take() == [DropCoordinator(), FindCoordinator()]
        self.member.coordinator_found(self.now_ms)

    def join(self) -> JoinGroupRequest:
        """A poll joins."""
        assert self.member.can_join(self.now_ms)
        self.member.join(PROTOCOLS, self.now_ms)
        (request,) = self.take()
        assert isinstance(request, JoinGroupRequest)
        return request

    def answer_join(
        self, request: JoinGroupRequest, member_id: str = "m", leader: str = "l", generation: int = 1
    ) -> None:
        """It takes part in a generation."""
        answer = JoinGroupResponse(
            generation_id=generation,
            protocol_name="range",
            leader=leader,
            member_id=member_id,
            protocol_type="consumer",
        )
        self.member.receive(request, answer, self.now_ms)

    def refuse_join(self, request: JoinGroupRequest, code: ErrorCode, member_id: str = "") -> None:
        """The join is refused."""
        self.member.receive(request, JoinGroupResponse(error_code=code, member_id=member_id), self.now_ms)

    def answer_sync(self, assignment: bytes = b"mine", code: ErrorCode = ErrorCode.NONE) -> SyncGroupRequest:
        """Its SyncGroup is answered."""
        (request,) = self.take()
        assert isinstance(request, SyncGroupRequest)
        self.member.receive(request, SyncGroupResponse(assignment=assignment, error_code=code), self.now_ms)
        return request

    def become_member(self) -> None:
        """From the start to a stable member with its assignment taken."""
        self.find()
        self.answer_join(self.join())
        self.answer_sync()
        assert self.member.assignment == b"mine"
        self.member.assignment_taken()
        assert self.take() == []

    def heartbeat(self, code: ErrorCode = ErrorCode.NONE) -> HeartbeatRequest:
        """The next heartbeat is sent and answered."""
        self.pass_time(SETTINGS.heartbeat_interval_ms)
        (request,) = self.take()
        assert isinstance(request, HeartbeatRequest)
        self.member.receive(request, HeartbeatResponse(error_code=code), self.now_ms)
        return request


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.spec("G10")
def test_from_the_start_to_a_stable_member(bench: Bench) -> None:
    member = bench.member
    assert member.client_state is ClientState.FINDING_COORDINATOR
    bench.find()
    assert member.client_state is ClientState.STOPPED
    assert member.wants_poll(bench.now_ms)
    request = bench.join()
    assert request.member_id == ""
    assert request.rebalance_timeout_ms == 60_000
    assert request.session_timeout_ms == 10_000
    assert [(each.name, each.metadata) for each in request.protocols] == PROTOCOLS
    assert member.state is MemberState.PREPARING_REBALANCE
    assert not member.wants_poll(bench.now_ms)
    bench.answer_join(request)
    sync = bench.answer_sync()
    assert (sync.generation_id, sync.member_id, sync.protocol_name, sync.assignments) == (1, "m", "range", [])
    assert member.state is MemberState.STABLE
    assert member.wants_poll(bench.now_ms)
    member.assignment_taken()
    assert member.client_state is ClientState.MEMBER
    assert not member.wants_poll(bench.now_ms)


@pytest.mark.spec("G2")
def test_a_member_id_is_asked_for_first(bench: Bench) -> None:
    bench.find()
    bench.refuse_join(bench.join(), ErrorCode.MEMBER_ID_REQUIRED, "given")
    again = bench.join()
    assert again.member_id == "given"
    assert not bench.member.needs_prepare
    bench.answer_join(again, "given")
    assert bench.member.generation == Generation(1, "given", "range")


def test_the_leader_hands_in_the_assignment(bench: Bench) -> None:
    bench.find()
    bench.answer_join(bench.join(), leader="m")
    (action,) = bench.take()
    assert isinstance(action, Assign)
    bench.member.assigned(action.answer, {"m": b"1", "n": b"2"})
    sync = bench.answer_sync()
    assert [(each.member_id, each.assignment) for each in sync.assignments] == [("m", b"1"), ("n", b"2")]


@pytest.mark.spec("G10")
def test_heartbeats_go_on_and_a_rebalance_is_joined_by_the_next_poll(bench: Bench) -> None:
    bench.become_member()
    for _ in range(3):
        assert bench.heartbeat().generation_id == 1
    bench.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert bench.member.state is MemberState.STABLE
    assert bench.join().reason == "group is already rebalancing"
    bench.pass_time(20_000)
    assert bench.take() == []  # no heartbeats while JoinGroup waits


@pytest.mark.spec("G10")
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_that_was_kicked_out_has_lost_what_it_owned(bench: Bench, code: ErrorCode) -> None:
    bench.become_member()
    bench.heartbeat(code)
    assert bench.member.has_lost_membership
    assert bench.member.needs_prepare
    assert bench.member.client_state is ClientState.STOPPED
    assert bench.join().member_id == ("m" if code is ErrorCode.ILLEGAL_GENERATION else "")


@pytest.mark.spec("G10")
def test_refusals_of_an_older_generation_are_ignored(bench: Bench) -> None:
    bench.become_member()
    bench.pass_time(3_000)
    (heartbeat,) = bench.take()
    assert isinstance(heartbeat, HeartbeatRequest)
    bench.member.request_rejoin("the subscription has changed")
    bench.answer_join(bench.join(), generation=2)
    bench.member.receive(heartbeat, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION), bench.now_ms)
    assert bench.member.generation.generation_id == 2


@pytest.mark.spec("G10")
def test_a_heartbeat_that_join_group_overtook_loses_nothing(bench: Bench) -> None:
    bench.become_member()
    bench.pass_time(3_000)
    (heartbeat,) = bench.take()
    assert isinstance(heartbeat, HeartbeatRequest)
    bench.member.request_rejoin("the subscription has changed")
    join = bench.join()
    bench.member.receive(heartbeat, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION), bench.now_ms)
    assert bench.member.generation == Generation(1, "m", "range")
    bench.answer_join(join, generation=2)
    bench.answer_sync()
    assert bench.member.generation.generation_id == 2


@pytest.mark.spec("G10")
def test_a_heartbeat_of_an_older_generation_asks_for_no_rebalance(bench: Bench) -> None:
    bench.become_member()
    bench.pass_time(3_000)
    (heartbeat,) = bench.take()
    assert isinstance(heartbeat, HeartbeatRequest)
    bench.member.request_rejoin("the subscription has changed")
    bench.answer_join(bench.join(), generation=2)
    bench.answer_sync()
    bench.member.receive(heartbeat, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), bench.now_ms)
    assert not bench.member.rejoin_needed


@pytest.mark.spec("G10")
def test_a_fenced_member_stops_for_good() -> None:
    bench = Bench(MemberSettings("g", "instance", heartbeat_interval_ms=3_000))
    bench.find()
    bench.answer_join(bench.join())
    bench.answer_sync()
    bench.member.assignment_taken()
    bench.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(bench.member.failure, FencedInstanceIdError)
    assert "whose group.instance.id is instance: " in str(bench.member.failure)
    assert bench.member.generation == NO_GENERATION


@pytest.mark.spec("G10")
def test_the_coordinator_is_found_again_while_consuming(bench: Bench) -> None:
    bench.become_member()
    bench.heartbeat(ErrorCode.NOT_COORDINATOR)
    assert bench.member.client_state is ClientState.FINDING_COORDINATOR_AGAIN
    assert bench.member.consumes
    assert bench.take() == [DropCoordinator(), FindCoordinator()]
    bench.member.coordinator_not_found(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "none"), bench.now_ms)
    bench.pass_time(99)
    assert bench.take() == []
    bench.pass_time(1)
    bench.find()
    assert bench.member.client_state is ClientState.MEMBER
    assert bench.member.lookup.lost_at_ms is None
    (heartbeat,) = bench.take()
    assert isinstance(heartbeat, HeartbeatRequest)


@pytest.mark.spec("G10")
def test_a_silent_coordinator_is_given_up_after_the_session_timeout(bench: Bench) -> None:
    bench.become_member()
    bench.pass_time(9_999)
    assert bench.member.lookup.is_known
    bench.pass_time(1)
    assert bench.member.client_state is ClientState.FINDING_COORDINATOR_AGAIN
    assert "session.timeout.ms=10000" in str(bench.member.lookup.problem)


@pytest.mark.spec("G10")
def test_who_does_not_poll_leaves_and_says_why(bench: Bench) -> None:
    bench.become_member()
    for _ in range(19):
        bench.heartbeat()
    bench.pass_time(3_000)
    leave = next(one for one in bench.take() if isinstance(one, LeaveGroupRequest))
    assert [(each.member_id, each.reason) for each in leave.members] == [("m", "consumer poll timeout has expired.")]
    assert bench.member.has_lost_membership
    assert bench.member.can_join(bench.now_ms)
    (note,) = bench.member.notes
    assert note.is_warning
    assert "max.poll.interval.ms=60000" in note.text


def test_polls_keep_it_in_the_group(bench: Bench) -> None:
    bench.become_member()
    for _ in range(40):
        bench.heartbeat()
        bench.member.polled(bench.now_ms)
    assert bench.member.state is MemberState.STABLE


@pytest.mark.spec("G9")
def test_leaving_reports_the_coordinator_and_forgets_the_member_id(bench: Bench) -> None:
    bench.become_member()
    bench.member.leave("the consumer is being closed")
    bench.member.stop()
    (leave,) = bench.take()
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].reason == "the consumer is being closed"
    assert bench.member.generation == NO_GENERATION
    assert bench.member.client_state is ClientState.DOWN
    assert bench.member.next_deadline_ms(bench.now_ms) is None


@pytest.mark.spec("G2")
def test_a_static_member_goes_without_a_word() -> None:
    bench = Bench(MemberSettings("g", "instance"))
    bench.find()
    bench.answer_join(bench.join())
    bench.answer_sync()
    bench.member.leave("the consumer is being closed")
    assert bench.take() == []


@pytest.mark.spec("G8")
@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION]
)
def test_a_refused_sync_is_followed_by_another_join_at_once(bench: Bench, code: ErrorCode) -> None:
    bench.find()
    bench.answer_join(bench.join())
    bench.answer_sync(code=code)
    assert bench.member.can_join(bench.now_ms)
    assert bench.member.needs_prepare == (code is not ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED])
def test_what_trying_again_does_not_help_is_reported(bench: Bench, code: ErrorCode) -> None:
    bench.find()
    bench.refuse_join(bench.join(), code)
    assert bench.member.failure is not None
    assert code.name in str(bench.member.failure)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_what_passes_is_tried_again_after_a_pause(bench: Bench, code: ErrorCode) -> None:
    bench.find()
    bench.refuse_join(bench.join(), code)
    if code is ErrorCode.NOT_COORDINATOR:
        bench.find_again()
    assert not bench.member.wants_poll(bench.now_ms)
    bench.pass_time(100)
    assert bench.member.can_join(bench.now_ms)
    assert bench.member.failure is None


@pytest.mark.spec("G10")
def test_a_lost_connection_during_a_join_leads_to_another_one(bench: Bench) -> None:
    bench.find()
    request = bench.join()
    bench.member.request_failed(request, ConnectionLostError("gone", retriable=True), bench.now_ms)
    bench.find_again()
    bench.pass_time(100)
    assert bench.join().reason == "rebalance failed due to ConnectionLostError"


@pytest.mark.spec("G10")
def test_a_join_at_a_coordinator_that_others_found_lost_is_made_again_with_the_next_one(bench: Bench) -> None:
    bench.find()
    request = bench.join()
    bench.member.coordinator_lost("a commit was not answered", bench.now_ms)
    bench.find_again()
    assert not bench.member.is_joining
    bench.pass_time(100)
    again = bench.join()
    bench.answer_join(request, generation=1)
    bench.member.request_failed(request, ConnectionLostError("gone", retriable=True), bench.now_ms)
    assert bench.member.lookup.is_known, "what became of the first join is of no interest"
    assert bench.member.is_joining
    bench.answer_join(again, generation=2)
    assert bench.member.generation.generation_id == 2


@pytest.mark.spec("G10")
def test_a_coordinator_that_is_silent_after_the_join_is_not_waited_for(bench: Bench) -> None:
    bench.find()
    bench.answer_join(bench.join())
    (sync,) = bench.take()
    assert isinstance(sync, SyncGroupRequest)
    bench.pass_time(SETTINGS.session_timeout_ms)
    heartbeat, *others = bench.take()
    assert isinstance(heartbeat, HeartbeatRequest)
    assert others == [DropCoordinator(), FindCoordinator()]
    bench.member.coordinator_found(bench.now_ms)
    bench.pass_time(100)
    assert bench.member.can_join(bench.now_ms)


@pytest.mark.spec("G10")
def test_a_coordinator_that_is_lost_as_soon_as_it_is_found_is_looked_for_after_a_pause(bench: Bench) -> None:
    """Brokers go on naming one that has died until another one is elected: seconds, in which nobody must spin."""
    bench.become_member()
    refused = ConnectionLostError("refused", retriable=True)
    bench.pass_time(2_000)
    bench.take()
    bench.member.coordinator_lost(refused, bench.now_ms)
    assert bench.take() == [DropCoordinator(), FindCoordinator()], "at once, for the first time"
    for pause_ms in (100, 200, 400, 800, 1_000, 1_000):
        bench.member.coordinator_found(bench.now_ms)
        bench.take()
        bench.member.coordinator_lost(refused, bench.now_ms)
        assert bench.take() == [DropCoordinator()]
        bench.pass_time(pause_ms - 1)
        assert bench.take() == []
        bench.pass_time(1)
        assert bench.take() == [FindCoordinator()]
    bench.member.coordinator_found(bench.now_ms)
    bench.pass_time(1_000)
    bench.take()
    bench.member.coordinator_lost(refused, bench.now_ms)
    assert bench.take() == [DropCoordinator(), FindCoordinator()], "this one was in office for a while"


def test_an_answer_that_comes_too_late_is_ignored(bench: Bench) -> None:
    bench.find()
    request = bench.join()
    bench.member.leave("the consumer unsubscribed from all topics")
    bench.member.stop()
    bench.answer_join(request)
    assert bench.member.state is MemberState.UNJOINED
    assert bench.take() == []


def test_pauses_of_members_vary():
    """KIP-580: members that lost their coordinator together do not come back together."""
    member = Membership(MemberSettings("g", retry_backoff_ms=100), lambda pause_ms: pause_ms * 1.1)
    member.start(0)
    member.coordinator_not_found(ClientError("away", retriable=True), 0)
    assert member.next_deadline_ms(0) == pytest.approx(110)


def test_a_caller_that_is_no_member_has_the_coordinator_looked_for_at_once():
    member = Membership(SETTINGS)
    assert member.next_deadline_ms(1_000) is None
    member.want_coordinator(1_000)
    assert member.actions == [FindCoordinator()]
