"""The controller beside Apache Kafka's: the recorded scenes of its term, played to our state machine.

What is asked of the controller and what happens to brokers comes from the recording; what our machine then sends to
brokers 2 and 3 about each partition, and what it answers to AlterPartition, is what Apache Kafka's controller did, but
for what `support.wanted_differences` names.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from golden.cluster.interbroker_scenes import ASSIGNMENT, TOPIC
from golden.cluster.interbroker_transcript import from_lines
from ottla.cluster import controller_events as events
from ottla.cluster.control_batches import ControlRequest, LeaderAndIsrBatch, StopReplicaBatch
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import decode
from ottla.wire.framing import parse_request_header, parse_response_header
from scenarios.controller.runner import Transcript
from support.recording_tap import Exchange

RECORDED = Path(__file__).parent / "interbroker"
OTHERS = (2, 3)
CONTROL = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
#: The scenes in which broker 1 is the controller, and what happens in each beside AlterPartition. `{2}` stands for the
#: epoch of broker 2 at the scene's end.
SCENES: dict[str, list[str]] = {
    "01-start": ["elected 1 1@{1}", "brokers 1@{1} 2@{2}", "brokers 1@{1} 2@{2} 3@{3}"],
    "02-create-topic": [f"create {TOPIC} assigned={','.join('+'.join(map(str, r)) for r in ASSIGNMENT)}"],
    "05-shrink-and-expand": [],
    "06-kill": ["brokers 1@{1} 2@{2}"],
    "07-return": ["brokers 1@{1} 2@{2} 3@{3}"],
    "08-controlled-shutdown": ["shutdown 2 {2}", "brokers 1@{1} 3@{3}"],
    "09-start-again": ["brokers 1@{1} 2@{2} 3@{3}"],
    "10-preferred-election": [f"prefer {TOPIC}-0 {TOPIC}-1 {TOPIC}-2"],
    "11-diverge": ["brokers 1@{1} 2@{2}"],
    "12-truncate": ["brokers 1@{1} 2@{2} 3@{3}"],
}

Sent = dict[int, list[tuple[str, list[tuple[Any, ...]]]]]


class Play:
    """Our controller, whose writes and notices succeed at once."""

    def __init__(self, broker_id: int = 1) -> None:
        self.transcript = Transcript(broker_id)
        self.sent: Sent = defaultdict(list)
        self.effects: list[events.SendToBroker] = []
        self.answers: dict[int, object] = {}
        self.epochs: dict[int, int] = {}

    def run(self, command: str) -> None:
        name, *words = command.format(None, *(self.epochs.get(number, -1) for number in (1, 2, 3))).split()
        self.handle(getattr(self.transcript, f"_{name}")(words))

    def handle(self, event: events.Event) -> None:
        waiting: list[events.Event] = [event]
        while waiting:
            for effect in self.transcript.controller.handle(waiting.pop(0), 1_000):
                if isinstance(effect, events.Write):
                    waiting.append(events.Written(effect.write_id))
                elif isinstance(effect, events.Notify):
                    self.transcript.applied.apply(effect.delta)
                    waiting.append(events.Notified(effect.notify_id))
                elif isinstance(effect, events.SendToBroker):
                    self.effects.append(effect)
                    for request in effect.requests:
                        add(self.sent, effect.broker_id, *of_ours(request))
                        waiting.extend(answered(effect, request))
                elif isinstance(effect, events.Answer):
                    self.answers[effect.token] = effect.result
            self.transcript.controller.check_invariants()


def add(sent: Sent, broker_id: int, name: str, entries: list[tuple[Any, ...]]) -> None:
    """Append a request, to the one before where that is of the same kind."""
    if sent[broker_id] and sent[broker_id][-1][0] == name:
        name, before = sent[broker_id].pop()
        entries = [*before, *entries]
    sent[broker_id].append((name, entries))


def answered(sent: events.SendToBroker, request: ControlRequest) -> list[events.Event]:
    """That the broker has taken all these roles, or deleted all these replicas."""
    if isinstance(request, LeaderAndIsrBatch):
        taken = [(one.topic, one.partition) for one in request.entries]
        return [events.LeaderAndIsrAnswered(sent.broker_id, sent.broker_epoch, taken, ())]
    if isinstance(request, StopReplicaBatch):
        deleted = [(one.topic, one.partition) for one in request.entries if one.is_deletion]
        return [events.DeletionAnswered(sent.broker_id, sent.broker_epoch, deleted)]
    return []


def of_ours(request: ControlRequest) -> tuple[str, list[tuple[Any, ...]]]:
    if isinstance(request, StopReplicaBatch):
        stops = [(one.topic, one.partition, one.leader_epoch) for one in request.entries]
        deleting = " with deletion" if any(one.is_deletion for one in request.entries) else ""
        return f"StopReplica{deleting}", stops
    entries = []
    for one in request.entries:
        state = one.state
        plain = (one.topic, one.partition, state.leader, state.leader_epoch, state.isr, state.replicas)
        if isinstance(request, LeaderAndIsrBatch):
            entries.append((*plain, one.partition_epoch, one.is_new, one.is_recovering))
        else:
            entries.append((*plain, one.partition_epoch, tuple(one.offline)))
    return ("LeaderAndIsr" if isinstance(request, LeaderAndIsrBatch) else "UpdateMetadata"), entries


def of_apache(api_key: int, request: Any) -> tuple[str, list[tuple[Any, ...]]]:
    entries: list[tuple[Any, ...]] = []
    is_deletion = False
    for topic in request.topic_states:
        for one in topic.partition_states:
            if api_key == ApiKey.STOP_REPLICA:
                is_deletion |= one.delete_partition
                entries.append((topic.topic_name, one.partition_index, one.leader_epoch))
                continue
            plain = (topic.topic_name, one.partition_index, one.leader, one.leader_epoch, tuple(one.isr))
            if api_key == ApiKey.LEADER_AND_ISR:
                marks = one.partition_epoch, one.is_new, bool(one.leader_recovery_state)
                entries.append((*plain, tuple(one.replicas), *marks))
            else:
                entries.append((*plain, tuple(one.replicas), one.zk_version, tuple(one.offline_replicas)))
    name = {ApiKey.LEADER_AND_ISR: "LeaderAndIsr", ApiKey.UPDATE_METADATA: "UpdateMetadata"}.get(
        ApiKey(api_key), f"StopReplica{' with deletion' if is_deletion else ''}"
    )
    return name, entries


def decoded(one: Exchange, *, is_request: bool) -> Any:
    api = API[one.api_key]
    if is_request:
        _, position = parse_request_header(one.request)
        return decode(api.request, one.request, one.api_version, position)
    _, position = parse_response_header(one.response, one.api_key, one.api_version)
    return decode(api.response, one.response, one.api_version, position)


def propose(play: Play, one: Exchange) -> None:
    """An AlterPartition as it was recorded, with its answers."""
    request, response = decoded(one, is_request=True), decoded(one, is_request=False)
    answers = {partition.partition_index: partition for topic in response.topics for partition in topic.partitions}
    for topic in request.topics:
        for partition in topic.partitions:
            token = play.transcript._token()
            play.handle(
                events.IsrProposed(
                    token,
                    request.broker_id,
                    request.broker_epoch,
                    TOPIC,
                    partition.partition_index,
                    partition.leader_epoch,
                    partition.partition_epoch,
                    tuple(state.broker_id for state in partition.new_isr_with_epochs),
                    bool(partition.leader_recovery_state),
                )
            )
            expected = answers[partition.partition_index]
            ours = play.answers[token]
            if expected.error_code:
                assert ours == events.IsrRefused(expected.error_code)
            else:
                assert isinstance(ours, events.IsrAccepted), ours
                assert (ours.state.isr, ours.partition_epoch) == (tuple(expected.isr), expected.partition_epoch)


def by_partition(sent: Sent) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    """Of each broker, partition and kind of request, what was said, in its order and without repetitions.

    So it allows for `Wanted.REPEATED`, and without the epochs of StopReplica for `Wanted.STOP_EPOCH`.
    """
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for broker_id in OTHERS:
        for name, entries in sent[broker_id]:
            for topic, partition, *said in entries:
                known = found[broker_id, topic, partition, name]
                what = () if name == "StopReplica" else tuple(said)
                if known[-1:] != [what]:
                    known.append(what)
    return dict(found)


@pytest.mark.spec("R1", "Z3")
def test_the_controller_sends_what_apache_kafkas_sent() -> None:
    play = Play()
    for scene, commands in SCENES.items():
        exchanges = [one for one in from_lines(RECORDED / f"{scene}.jsonl") if one.answered]
        apaches: Sent = defaultdict(list)
        for one in exchanges:
            if one.api_key in CONTROL:
                request = decoded(one, is_request=True)
                play.epochs[one.receiver] = request.broker_epoch
                add(apaches, one.receiver, *of_apache(one.api_key, request))
        play.sent.clear()
        for command in commands:
            play.run(command)
        for one in exchanges:
            if one.api_key == ApiKey.ALTER_PARTITION:
                propose(play, one)
        ours, theirs = by_partition(play.sent), by_partition(apaches)
        assert ours == theirs, scene
