"""Runs transcripts of a broker that obeys a controller: `> command` lines, each followed by what the broker does.

The broker has id 1 and registration 10. A partition is written `t-0=LEADER/EPOCH/REPLICAS`, with `/ISR` after it where
that is not all replicas. Commands:

leader-and-isr [epoch=1] [broker-epoch=10] [id=A] [new] [kraft] t-0=1/4/1+2 ..
stop-replica [epoch=1] [broker-epoch=10] [delete] t-0=EPOCH ..
update-metadata [epoch=1] [broker-epoch=10] [brokers=1+2] [id=A] t-0=1/4/1+2 ..
elected EPOCH                            this broker is the controller itself
restart [BROKER-EPOCH]                   logs stay, roles and the image are forgotten
lose t-0 ..                              its log is gone
fail t-0 ..                              its log directory has failed
"""

from __future__ import annotations

import shlex
from uuid import UUID

from ottla.cluster.control_batches import PartitionEntry, StopEntry
from ottla.cluster.control_requests import (
    ControlHeader,
    ControlRequests,
    HostedReplica,
    updating_topic,
)
from ottla.cluster.image import BrokerImage, ClusterImage, ImageDelta, PartitionImage, RoleAction
from ottla.wire.errors import ErrorCode
from support.steps import result_of

BROKER = 1
REGISTRATION = 10
FLAGS = ("new", "delete", "kraft")

Key = tuple[str, int]


class Transcript:
    """A broker's replicas, and the controller that it obeys."""

    def __init__(self) -> None:
        self.machine = ControlRequests(BROKER)
        self.image = ClusterImage()
        self.replicas: dict[Key, HostedReplica] = {}
        self.broker_epoch = REGISTRATION

    def run(self, line: str) -> list[str]:
        """What the broker does, a line each."""
        command, *words = shlex.split(line)
        flags = {word for word in words if word in FLAGS}
        options = dict(word.split("=") for word in words if "=" in word and "-" not in word.partition("=")[0])
        options |= {name: value for name, _, value in (w.partition("=") for w in words) if name == "broker-epoch"}
        parts = [word for word in words if word.partition("=")[0] not in (*FLAGS, *options)]
        lines: list[str] = getattr(self, "_" + command.replace("-", "_"))(parts, options, flags)
        return lines or ["(nothing)"]

    def _admitted(self, options: dict[str, str], flags: set[str]) -> ErrorCode:
        header = ControlHeader(
            2, int(options.get("epoch", 1)), int(options.get("broker-epoch", REGISTRATION)), "kraft" in flags
        )
        return self.machine.admit(header, self.broker_epoch)

    def _leader_and_isr(self, parts: list[str], options: dict[str, str], flags: set[str]) -> list[str]:
        refused = self._admitted(options, flags)
        if refused is not ErrorCode.NONE:
            return [refused.name]
        return [self._role(entry(part, options, "new" in flags)) for part in parts]

    def _role(self, one: PartitionEntry) -> str:
        key = (one.topic, one.partition)
        here = self.replicas.get(key, HostedReplica())
        action, error = self.machine.role(one, here, leader_is_alive=one.state.leader in self.image.brokers)
        if action in (RoleAction.LEAD, RoleAction.FOLLOW):
            here = here._replace(leader_epoch=one.state.leader_epoch, has_log=True)
        if action is RoleAction.CREATE:
            here = here._replace(has_log=True)
        if action is not RoleAction.NONE:
            self.replicas[key] = here._replace(topic_id=one.topic_id if one.topic_id.int else here.topic_id)
        return f"{one.topic}-{one.partition}: {error.name if error else action.value}"

    def _stop_replica(self, parts: list[str], options: dict[str, str], flags: set[str]) -> list[str]:
        refused = self._admitted(options, flags)
        if refused is not ErrorCode.NONE:
            return [refused.name]
        lines = []
        for part in parts:
            name, _, epoch = part.partition("=")
            one = StopEntry(*key_of(name), int(epoch), "delete" in flags)
            action, error = self.machine.stop(one, self.replicas.get(key_of(name), HostedReplica()))
            if action is RoleAction.DELETE:
                self.replicas.pop(key_of(name), None)
            lines.append(f"{name}: {error.name if error else action.value}")
        return lines

    def _update_metadata(self, parts: list[str], options: dict[str, str], flags: set[str]) -> list[str]:
        refused = self._admitted(options, flags)
        if refused is not ErrorCode.NONE:
            return [refused.name]
        brokers = {number: BrokerImage(number, ()) for number in numbers(options.get("brokers", "1"))}
        entries: dict[str, list[PartitionEntry]] = {}
        for part in parts:
            one = entry(part, options, False)
            entries.setdefault(one.topic, []).append(one)
        deltas = tuple(
            self.image.delta_of(
                name, result_of(updating_topic(self.image.topics.get(name), some[0].topic_id, some, {}))
            )
            for name, some in entries.items()
        )
        self.image.apply(ImageDelta(deltas, brokers, 2))
        lines = ["brokers " + "+".join(map(str, self.image.brokers))]
        for name in entries:
            topic = self.image.topics.get(name)
            if topic is None:
                lines.append(f"{name} is gone")
                continue
            for index, state in enumerate(topic.partitions):
                offline = f", offline {'+'.join(map(str, state.offline))}" if state.offline else ""
                lines.append(f"{name}-{index}: leader {state.leader}, epoch {state.leader_epoch}{offline}")
        return lines

    def _elected(self, parts: list[str], options: dict[str, str], flags: set[str]) -> list[str]:
        self.machine.elected(int(parts[0]))
        return []

    def _restart(self, parts: list[str], options: dict[str, str], flags: set[str]) -> list[str]:
        self.machine = ControlRequests(BROKER)
        self.image = ClusterImage()
        self.broker_epoch = int(parts[0]) if parts else REGISTRATION
        self.replicas = {key: here._replace(leader_epoch=-1) for key, here in self.replicas.items()}
        return []

    def _lose(self, parts: list[str], options: dict[str, str], flags: set[str]) -> list[str]:
        for part in parts:
            del self.replicas[key_of(part)]
        return []

    def _fail(self, parts: list[str], options: dict[str, str], flags: set[str]) -> list[str]:
        for part in parts:
            self.replicas[key_of(part)] = HostedReplica(is_offline=True)
        return []


def key_of(text: str) -> Key:
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("+") if number)


def entry(text: str, options: dict[str, str], is_new: bool) -> PartitionEntry:
    name, _, state = text.partition("=")
    leader, epoch, replicas, isr, offline = [*state.split("/"), "", ""][:5]
    topic, partition = key_of(name)
    image = PartitionImage(int(leader), int(epoch), numbers(replicas), numbers(isr or replicas))
    topic_id = UUID(int=int(options.get("id", "A"), 16))
    return PartitionEntry(topic, topic_id, partition, image, 0, numbers(offline), is_new)


def rerun(text: str) -> str:
    """The same commands with what happens now."""
    transcript = Transcript()
    lines = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines.append(line)
            lines.extend("  " + told for told in transcript.run(line.removeprefix("> ")))
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"
