"""`ottla replica move`: shows what brokers will copy, asks for confirmation, then asks the brokers."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.command import EXIT_REFUSED, NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.replica import COMMAND
from ottla.cli.terminal import Column, Terminal, count, data_size, numbers, write_json
from ottla.client.admin.brokers import BrokerAdmin
from ottla.client.admin.log_dirs import LogDirAdmin
from ottla.client.admin.model import LogDirDescription, TopicPartitionReplica
from ottla.client.errors import BrokerError, PartlyFailedError
from ottla.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.peer.cluster import Cluster

#: How often `--wait` asks.
ASK_AGAIN_S: Final = 0.5
#: Part of the space of a log directory that a move leaves free at least.
LEAST_FREE_SHARE: Final = 0.02

_TOPIC_PARTITION = re.compile(r"(.+)-(\d+)")


class MoveWish(NamedTuple):
    """The options of the command."""

    names: Sequence[str]
    broker: int
    to: str
    wait: bool
    yes: bool
    as_json: bool


class WantedReplica(NamedTuple):
    """A replica to be moved: where it is, its size, and what a move to this log directory has copied already."""

    replica: TopicPartitionReplica
    log_dir: str
    size_bytes: int
    copied_bytes: int

    @property
    def to_copy(self) -> int:
        """Bytes that are still to be copied."""
        return max(0, self.size_bytes - self.copied_bytes)


_MOVES: tuple[Column[WantedReplica], ...] = (
    Column("TOPIC", lambda each: each.replica.topic, may_shrink=True),
    numbers("PARTITION", lambda each: each.replica.partition),
    Column("NOW", lambda each: each.log_dir, may_shrink=True),
    numbers("TO COPY", lambda each: data_size(each.to_copy)),
)


async def move_replicas(cluster: Cluster, wish: MoveWish) -> int:
    """Show, confirm and begin the moves; returns the exit code. Raises CommandError, ClientError."""
    described = (await BrokerAdmin(cluster).describe_log_dirs([wish.broker]))[wish.broker]
    wanted = _wanted(described, wish)
    _check_space(described[wish.to], wanted)
    terminal = Terminal.standard_output()
    if not wish.as_json:
        terminal.table(_MOVES, wanted)
        size = data_size(sum(each.to_copy for each in wanted))
        free = described[wish.to].usable_bytes
        left = "" if free < 0 else f", {data_size(free)} free"
        terminal.line(f"{count(len(wanted), 'replica')} of broker {wish.broker} to {wish.to}: {size} to copy{left}")
    if not confirmed("Move them?", yes=wish.yes, as_json=wish.as_json):
        _report(wish, wanted, {}, begun=False)
        return COMMAND.report(NOT_CONFIRMED)
    refused: dict[TopicPartitionReplica, str] = {}
    try:
        await LogDirAdmin(cluster).alter_replica_log_dirs({each.replica: wish.to for each in wanted})
    except PartlyFailedError as error:
        refused = {key: str(each) for key, each in error.errors.items() if isinstance(key, TopicPartitionReplica)}
    except BrokerError as error:
        refused = {each.replica: str(error) for each in wanted}
    begun = [each.replica for each in wanted if each.replica not in refused]
    if wish.wait and begun:
        await _wait(cluster, begun, wish.to)
    _report(wish, wanted, refused, begun=True)
    for text in dict.fromkeys(refused.values()):
        COMMAND.report(text)
    return EXIT_REFUSED if refused else 0


def _wanted(described: Mapping[str, LogDirDescription], wish: MoveWish) -> list[WantedReplica]:
    if wish.to not in described:
        raise CommandError(
            f"broker {wish.broker} has no log directory {wish.to}; it has {', '.join(sorted(described))}"
        )
    if described[wish.to].error is not None:
        raise CommandError(f"{wish.to} of broker {wish.broker} is out of service: {described[wish.to].error}")
    here: dict[TopicPartition, tuple[str, int]] = {}
    for path, log_dir in described.items():
        here.update((key, (path, each.size_bytes)) for key, each in log_dir.replicas.items() if not each.is_future)
    copied = {key: each.size_bytes for key, each in described[wish.to].replicas.items() if each.is_future}
    wanted: dict[TopicPartition, WantedReplica] = {}
    for name in wish.names:
        keys = [key for key in here if key.topic == name] or _partition_named(name)
        for key in keys:
            if key not in here:
                raise CommandError(f"broker {wish.broker} has no replica of {name} in a working log directory")
            path, size = here[key]
            replica = TopicPartitionReplica(key.topic, key.partition, wish.broker)
            done = size if path == wish.to else copied.get(key, 0)
            wanted[key] = WantedReplica(replica, path, size, done)
    return [wanted[key] for key in sorted(wanted)]


def _partition_named(name: str) -> list[TopicPartition]:
    found = _TOPIC_PARTITION.fullmatch(name)
    if found is None:
        raise CommandError(f"there is no topic {name} on this broker; name a partition as TOPIC-PARTITION")
    return [TopicPartition(found[1], int(found[2]))]


def _check_space(log_dir: LogDirDescription, wanted: Sequence[WantedReplica]) -> None:
    """Refuse moves that lack room. Raises CommandError."""
    needed = sum(each.to_copy for each in wanted)
    if log_dir.usable_bytes < 0:
        return
    room = log_dir.usable_bytes - int(log_dir.total_bytes * LEAST_FREE_SHARE)
    if needed > room:
        raise CommandError(
            f"{log_dir.path} has {data_size(log_dir.usable_bytes)} free, and {data_size(needed)} would be copied to "
            f"it; move fewer replicas, or make room"
        )


async def _wait(cluster: Cluster, replicas: Sequence[TopicPartitionReplica], to: str) -> None:
    """Wait until none of them is being moved to `to` any more."""
    while True:
        found = await LogDirAdmin(cluster).describe_replica_log_dirs(replicas)
        if not any(each.future_log_dir == to for each in found.values()):
            return
        await asyncio.sleep(ASK_AGAIN_S)


def _report(
    wish: MoveWish, wanted: Sequence[WantedReplica], refused: Mapping[TopicPartitionReplica, str], *, begun: bool
) -> None:
    if not wish.as_json:
        return
    for each in wanted:
        row = {
            **each.replica._asdict(),
            "log_dir": each.log_dir,
            "new_log_dir": wish.to,
            "to_copy_bytes": each.to_copy,
            "begun": begun and each.replica not in refused,
        }
        error = refused.get(each.replica)
        write_json({**row, "error": error} if error is not None else row)
