"""How brokers and producers are shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.cli.broker import COMMAND
from ottla.cli.cluster.status_views import broker_rows, show_brokers
from ottla.cli.command import CommandError
from ottla.cli.config.views import setting_row, show_settings
from ottla.cli.log.output import instant
from ottla.cli.terminal import Cell, Column, Row, Style, Terminal, count, data_size, write_json
from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.model import ActiveProducer, ConfigEntry, ConfigResource, LogDirDescription
from ottla.client.admin.partitions import PartitionAdmin
from ottla.client.errors import PartlyFailedError, UnknownTopicError
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import ClusterStatus, read_cluster_status
from ottla.peer.cluster import Cluster
from ottla.peer.errors import BrokerError

_LOG_DIRS = (
    Column("LOG DIRECTORY", may_shrink=True),
    Column("REPLICAS", is_number=True),
    Column("SIZE", is_number=True),
    Column("FREE", is_number=True),
    Column("NOTE"),
)
_PRODUCERS = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("PRODUCER", is_number=True),
    Column("EPOCH", is_number=True),
    Column("LAST SEQUENCE", is_number=True),
    Column("LAST BATCH"),
    Column("COORDINATOR EPOCH", is_number=True),
    Column("OPEN TRANSACTION", is_number=True),
)


async def describe_brokers(cluster: Cluster, asked: Sequence[int] | None, *, as_json: bool) -> int:
    """Show brokers with their log directories and the settings given while they run; returns the exit code."""
    status = await read_cluster_status(cluster, offsets=False)
    alive = [each.node.node_id for each in status.brokers]
    wanted = alive if asked is None else [number for number in asked if number in alive]
    code = 0
    for number in asked or ():
        if number not in alive:
            code = COMMAND.report(_absent(status, number))
    resources = [ConfigResource.broker(number) for number in wanted]
    settings = await ConfigAdmin(cluster).describe_configs(resources, include_synonyms=True) if resources else {}
    terminal = Terminal.standard_output()
    for at, broker in enumerate(each for each in status.brokers if each.node.node_id in wanted):
        resource = ConfigResource.broker(broker.node.node_id)
        given = [each for _, each in sorted(settings[resource].items()) if each.source.startswith("DYNAMIC")]
        if as_json:
            (row,) = [row for row in broker_rows(status) if row["broker"] == broker.node.node_id]
            write_json({**row, "settings": [_setting(resource, each) for each in given]})
            continue
        if at:
            terminal.line()
        show_brokers(terminal, status, only=broker.node.node_id)
        terminal.table(_LOG_DIRS, [_log_dir_cells(each) for each in broker.log_dirs.values()])
        if given:
            show_settings(terminal, resource, given)
    return code


def _setting(resource: ConfigResource, entry: ConfigEntry) -> dict[str, Any]:
    row = setting_row(resource, entry)
    return {name: value for name, value in row.items() if not name.startswith("entity")}


def _absent(status: ClusterStatus, broker: int) -> str:
    held = sum(broker in [each.broker for each in partition.replicas] for partition in status.partitions)
    return f"broker {broker} is not there" + (f", and has replicas of {count(held, 'partition')}" if held else "")


def _log_dir_cells(log_dir: LogDirDescription) -> Row:
    return (
        log_dir.path,
        str(len(log_dir.replicas)),
        data_size(sum(each.size_bytes for each in log_dir.replicas.values())),
        data_size(log_dir.usable_bytes) if log_dir.usable_bytes >= 0 else "-",
        Cell(log_dir.error or "", Style.BAD),
    )


def parse_partitions(given: Sequence[str]) -> list[TopicPartition | str]:
    """Topics and partitions of TOPIC[:PARTITION]. Raises CommandError."""
    found: list[TopicPartition | str] = []
    for each in given:
        topic, colon, number = each.rpartition(":")
        if not colon:
            found.append(each)
        elif topic and number.isascii() and number.isdecimal():
            found.append(TopicPartition(topic, int(number)))
        else:
            raise CommandError(f"{each}: expected a topic, or a topic and the number of a partition, as in orders:0")
    return found


async def describe_producers(cluster: Cluster, given: Sequence[str], *, as_json: bool) -> int:
    """Show the producers of partitions; returns the exit code."""
    wanted: dict[TopicPartition, None] = {}
    for each in parse_partitions(given):
        if isinstance(each, TopicPartition):
            wanted[each] = None
            continue
        status = await read_cluster_status(cluster, [each], figures=False)
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
    rows = [(partition, producer) for partition, producers in sorted(found.items()) for producer in producers]
    if as_json:
        for partition, producer in rows:
            write_json({"topic": partition.topic, "partition": partition.partition, **producer._asdict()})
    elif rows:
        Terminal.standard_output().table(_PRODUCERS, [_producer_cells(*row) for row in rows], indent="")
    else:
        Terminal.standard_output().line("no producers")
    return code


def _producer_cells(partition: TopicPartition, producer: ActiveProducer) -> Row:
    return (
        partition.topic,
        str(partition.partition),
        str(producer.producer_id),
        str(producer.producer_epoch),
        _known(producer.last_sequence),
        instant(producer.last_timestamp),
        _known(producer.coordinator_epoch),
        _known(producer.transaction_start_offset),
    )


def _known(number: int) -> str:
    return "-" if number < 0 else str(number)
