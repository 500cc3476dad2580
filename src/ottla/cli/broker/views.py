"""How brokers and producers are shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.broker import COMMAND
from ottla.cli.cluster.status_views import broker_row, show_brokers
from ottla.cli.command import CommandError
from ottla.cli.config.views import setting_fields, show_settings
from ottla.cli.log.output import instant
from ottla.cli.terminal import PARTITION, TOPIC, Cell, Column, Style, Terminal, count, data_size, numbers, write_json
from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.model import ActiveProducer, ConfigResource, LogDirDescription
from ottla.client.admin.partitions import PartitionAdmin
from ottla.client.errors import PartlyFailedError, UnknownTopicError
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import ClusterStatus, read_cluster_status
from ottla.peer.cluster import Cluster
from ottla.peer.errors import BrokerError

_LOG_DIRS: tuple[Column[LogDirDescription], ...] = (
    Column("LOG DIRECTORY", lambda each: each.path, may_shrink=True),
    numbers("REPLICAS", lambda each: len(each.replicas)),
    numbers("SIZE", lambda each: data_size(each.size_bytes)),
    numbers("FREE", lambda each: data_size(each.usable_bytes) if each.usable_bytes >= 0 else None),
    Column("NOTE", lambda each: Cell(each.error or "", Style.BAD)),
)


class _Producer(NamedTuple):
    partition: TopicPartition
    producer: ActiveProducer


_PRODUCERS: tuple[Column[_Producer], ...] = (
    TOPIC,
    PARTITION,
    numbers("PRODUCER", lambda each: each.producer.producer_id),
    numbers("EPOCH", lambda each: each.producer.producer_epoch),
    numbers("LAST SEQUENCE", lambda each: _known(each.producer.last_sequence)),
    Column("LAST BATCH", lambda each: instant(each.producer.last_timestamp)),
    numbers("COORDINATOR EPOCH", lambda each: _known(each.producer.coordinator_epoch)),
    numbers("OPEN TRANSACTION", lambda each: _known(each.producer.transaction_start_offset)),
)


async def describe_brokers(cluster: Cluster, ids: Sequence[int] | None, *, as_json: bool) -> int:
    """Show brokers with their log directories and the settings given while they run; returns the exit code."""
    status = await read_cluster_status(cluster, offsets=False)
    alive = status.registered
    wanted = alive if ids is None else [broker_id for broker_id in ids if broker_id in alive]
    code = 0
    for broker_id in ids or ():
        if broker_id not in alive:
            code = COMMAND.report(_absent(status, broker_id))
    resources = [ConfigResource.broker(broker_id) for broker_id in wanted]
    settings = await ConfigAdmin(cluster).describe_configs(resources, include_synonyms=True) if resources else {}
    terminal = Terminal.standard_output()
    for at, broker in enumerate(each for each in status.brokers if each.node.node_id in wanted):
        resource = ConfigResource.broker(broker.node.node_id)
        dynamic = [each for _, each in sorted(settings[resource].items()) if each.source.startswith("DYNAMIC")]
        if as_json:
            write_json({**broker_row(status, broker.node.node_id), "settings": list(map(setting_fields, dynamic))})
            continue
        if at:
            terminal.line()
        show_brokers(terminal, status, only=broker.node.node_id)
        terminal.table(_LOG_DIRS, broker.log_dirs.values())
        if dynamic:
            show_settings(terminal, resource, dynamic)
    return code


def _absent(status: ClusterStatus, broker: int) -> str:
    held = sum(broker in [each.broker for each in partition.replicas] for partition in status.partitions)
    replicas = f", and has replicas of {count(held, 'partition')}" if held else ""
    return f"broker {broker} is not there{replicas}; the brokers are {', '.join(map(str, status.registered))}"


def parse_partitions(names: Sequence[str]) -> list[TopicPartition | str]:
    """Topics and partitions of TOPIC[:PARTITION]. Raises CommandError."""
    found: list[TopicPartition | str] = []
    for each in names:
        topic, colon, number = each.rpartition(":")
        if not colon:
            found.append(each)
        elif topic and number.isascii() and number.isdecimal():
            found.append(TopicPartition(topic, int(number)))
        else:
            raise CommandError(f"{each}: expected a topic, or a topic and the number of a partition, as in orders:0")
    return found


async def describe_producers(cluster: Cluster, names: Sequence[str], *, as_json: bool) -> int:
    """Show the producers of partitions; returns the exit code."""
    wanted: dict[TopicPartition, None] = {}
    for each in parse_partitions(names):
        if isinstance(each, TopicPartition):
            wanted[each] = None
            continue
        status = await read_cluster_status(cluster, [each], sizes=False)
        if status.missing:
            return COMMAND.report(str(UnknownTopicError(each, cluster.name, await cluster.nearest_topic(each))))
        wanted |= {partition.partition: None for topic in status.topics for partition in topic.partitions}
    code = 0
    try:
        found = await PartitionAdmin(cluster).describe_producers(wanted)
    except PartlyFailedError as error:
        found = error.values
        for problem in error.errors.values():
            code = COMMAND.report(str(problem))
    except (BrokerError, UnknownTopicError) as error:
        return COMMAND.report(str(error))
    rows = [_Producer(partition, producer) for partition, producers in sorted(found.items()) for producer in producers]
    if as_json:
        write_json(*({**partition._asdict(), **producer._asdict()} for partition, producer in rows))
    elif rows:
        Terminal.standard_output().table(_PRODUCERS, rows, indent="")
    else:
        Terminal.standard_output().line("no producers")
    return code


def _known(value: int) -> int | None:
    return None if value < 0 else value
