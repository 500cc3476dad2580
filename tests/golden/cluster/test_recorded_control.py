"""What Apache Kafka's controller said to three brokers, said to our state machine: it answers what they answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from golden.cluster.interbroker_scenes import SCENES
from golden.cluster.interbroker_transcript import from_lines
from ottla.cluster.control_batches import PartitionEntry, StopEntry
from ottla.cluster.control_requests import (
    ControlHeader,
    ControlRequests,
    HostedReplica,
)
from ottla.cluster.image import PartitionImage, RoleAction
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import decode
from ottla.wire.framing import parse_request_header, parse_response_header
from support.recording_tap import Exchange

RECORDED = Path(__file__).parent / "interbroker"
CONTROL = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
#: In this scene broker 1 lost its disk before it started again.
EMPTY_DISK = ("15-empty-disk", 1)

pytestmark = pytest.mark.spec("R1")


@dataclass
class Broker:
    """A broker as far as its answers to the controller depend on it."""

    broker_id: int
    #: The czxid of its registration in its present life.
    epoch: int = -1
    requests: ControlRequests = field(init=False)
    hosted: dict[tuple[str, int], HostedReplica] = field(default_factory=dict)

    def restarted(self, epoch: int, *, is_wiped: bool) -> None:
        self.epoch = epoch
        self.requests = ControlRequests(self.broker_id)
        kept = {} if is_wiped else self.hosted
        self.hosted = {key: replica._replace(leader_epoch=-1) for key, replica in kept.items()}

    def answer(self, api_key: int, request: Any) -> object:
        header = ControlHeader(
            request.controller_id, request.controller_epoch, request.broker_epoch, request.is_kraft_controller
        )
        error = self.requests.admit(header, self.epoch)
        if error or api_key == ApiKey.UPDATE_METADATA:
            return int(error), {}
        return int(error), self.roles(request) if api_key == ApiKey.LEADER_AND_ISR else self.stops(request)

    def roles(self, request: Any) -> dict[tuple[object, int], int]:
        alive = {leader.broker_id for leader in request.live_leaders}
        errors: dict[tuple[object, int], int] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                entry = entry_of(topic.topic_name, topic.topic_id, state)
                key = topic.topic_name, state.partition_index
                here = self.hosted.get(key, HostedReplica())
                decision = self.requests.role(entry, here, leader_is_alive=state.leader in alive)
                errors[topic.topic_id, state.partition_index] = int(decision.error)
                if decision.action in (RoleAction.LEAD, RoleAction.FOLLOW, RoleAction.CREATE):
                    self.hosted[key] = HostedReplica(state.leader_epoch, topic.topic_id, has_log=True)
        return errors

    def stops(self, request: Any) -> dict[tuple[object, int], int]:
        errors: dict[tuple[object, int], int] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = topic.topic_name, state.partition_index
                entry = StopEntry(topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
                decision = self.requests.stop(entry, self.hosted.get(key, HostedReplica()))
                errors[key] = int(decision.error)
                if decision.action is RoleAction.DELETE:
                    self.hosted.pop(key, None)
        return errors


def entry_of(topic: str, topic_id: UUID, state: Any) -> PartitionEntry:
    image = PartitionImage(state.leader, state.leader_epoch, tuple(state.replicas), tuple(state.isr))
    return PartitionEntry(topic, topic_id, state.partition_index, image, state.partition_epoch, is_new=state.is_new)


def answered(api_key: int, response: Any) -> object:
    """What Apache Kafka's broker answered."""
    errors: dict[tuple[object, int], int] = {}
    if api_key == ApiKey.LEADER_AND_ISR:
        for topic in response.topics:
            errors |= {(topic.topic_id, one.partition_index): one.error_code for one in topic.partition_errors}
    elif api_key == ApiKey.STOP_REPLICA:
        errors = {(one.topic_name, one.partition_index): one.error_code for one in response.partition_errors}
    return response.error_code, errors


def decoded(one: Exchange) -> tuple[Any, Any]:
    api = API[one.api_key]
    _, position = parse_request_header(one.request)
    request = decode(api.request, one.request, one.api_version, position)
    _, position = parse_response_header(one.response, one.api_key, one.api_version)
    return request, decode(api.response, one.response, one.api_version, position)


def test_the_state_machine_answers_as_apache_kafkas_brokers_did() -> None:
    brokers = {broker_id: Broker(broker_id) for broker_id in (1, 2, 3)}
    errors_seen = set()
    for scene in SCENES:
        for one in from_lines(RECORDED / f"{scene}.jsonl"):
            if one.api_key not in CONTROL or not one.answered:
                continue
            request, response = decoded(one)
            broker = brokers[one.receiver]
            if request.broker_epoch != broker.epoch:
                broker.restarted(request.broker_epoch, is_wiped=(scene, one.receiver) == EMPTY_DISK)
            expected = answered(one.api_key, response)
            assert broker.answer(one.api_key, request) == expected, f"{scene}: {request}"
            errors_seen |= set(expected[1].values())  # type: ignore[index]
    assert errors_seen == {0, 11}
