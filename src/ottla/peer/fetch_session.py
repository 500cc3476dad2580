"""Incremental fetch sessions (KIP-227): a broker remembers what is fetched, and requests name only what changes. Pure.

One `FetchSession` per broker. `build` gives the next request; `handled` and `failed` process its outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.peer.model import TopicPartition, by_topic
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
"""Asks for a new session; with the id of an old one, closes that."""
NO_LEADER_EPOCH = -1
MAX_EPOCH = 0x7FFFFFFF


class WantedFetch(NamedTuple):
    """The wanted read of a partition, with the epoch of the leader that is expected there (-1: not known)."""

    offset: int
    leader_epoch: int
    max_bytes: int


def fetch_topics(wanted: Mapping[TopicPartition, WantedFetch]) -> list[FetchTopic]:
    """These partitions as a request names them: by topic."""
    partitions = {
        each: FetchPartition(
            partition=each.partition,
            current_leader_epoch=at.leader_epoch,
            fetch_offset=at.offset,
            partition_max_bytes=at.max_bytes,
        )
        for each, at in wanted.items()
    }
    return [FetchTopic(topic=name, partitions=each) for name, each in by_topic(partitions).items()]


class FetchPlan(NamedTuple):
    """The content of a request: the session, partitions that are new or have changed, and those to be forgotten."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class SessionEpoch:
    """Id and epoch of the session at one broker: what the next request says, by the outcome of the one before."""

    def __init__(self) -> None:
        self.id = NO_SESSION_ID
        self.epoch = INITIAL_EPOCH

    @property
    def is_new(self) -> bool:
        """Whether the next request begins a session, so that it must name everything."""
        return self.epoch == INITIAL_EPOCH

    def handled(self, error_code: int, session_id: int) -> bool:
        """Take in the response's outcome; False if the response is void and the next request must name everything."""
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id, self.epoch = NO_SESSION_ID, INITIAL_EPOCH
            return False
        if error_code != ErrorCode.NONE:
            self.failed()
            return False
        if session_id == NO_SESSION_ID:  # the broker has no room for a session
            self.id, self.epoch = NO_SESSION_ID, INITIAL_EPOCH
        else:
            self.id = session_id
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        return True

    def failed(self) -> None:
        """There was no answer, or the epochs got out of step: close that session with the next request."""
        self.epoch = INITIAL_EPOCH


class FetchSession(SessionEpoch):
    """The fetch session at one broker, with the partitions known to it."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[TopicPartition, WantedFetch] = {}

    @property
    def partitions(self) -> Mapping[TopicPartition, WantedFetch]:
        """The partitions that the last request asked the broker to read."""
        return self._known

    def build(self, wanted: Mapping[TopicPartition, WantedFetch]) -> FetchPlan:
        """The next request for exactly these partitions."""
        if self.is_new:
            changed, forgotten = dict(wanted), []
        else:
            known = self._known
            changed = {each: at for each, at in wanted.items() if known.get(each) != at}
            forgotten = [each for each in known if each not in wanted]
        self._known = dict(wanted)
        return FetchPlan(
            self.id,
            self.epoch,
            fetch_topics(changed),
            [
                ForgottenTopic(topic=name, partitions=numbers)
                for name, numbers in by_topic({each: each.partition for each in forgotten}).items()
            ],
        )
