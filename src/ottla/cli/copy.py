"""`ottla copy`: the records of a topic into another one, of the same cluster or another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.named_clusters import SERVERS, complete_cluster, named_cluster
from ottla.cli.options import ClusterOptions
from ottla.cli.progress import passed_of
from ottla.cli.record_options import ClientProperties, Partitions, client_settings, parse_partitions, settings_for
from ottla.cli.record_reading import (
    BEGINNING,
    END,
    NEW_PARTITIONS_MS,
    Filter,
    StartAtBeginning,
    UntilEnd,
    reading_settings,
    record_filter,
    start_reading,
)
from ottla.cli.sending import MOST_PLACES, Rate, Sending, places_of
from ottla.cli.terminal import Terminal, count, duration, write_json

if TYPE_CHECKING:
    from ottla.client.sync import Admin, Producer
    from ottla.ops.topic_reading import TopicReader
    from ottla.records.consumed import ConsumerRecord

COMMAND = Command("ottla copy")

ToServers = Annotated[
    str | None,
    typer.Option("--to-bootstrap-server", help="One or more host:port of the target's cluster [the source's]."),
]
ToCluster = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The target's cluster, by its name in the file of --cluster.",
        autocompletion=complete_cluster,
    ),
]


def copy(
    shared: ClusterOptions,
    source: Annotated[str, typer.Argument(metavar="SOURCE_TOPIC", help="The topic that is read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET_TOPIC", help="The topic that is written.")],
    to_servers: ToServers = None,
    to_cluster: ToCluster = None,
    start: StartAtBeginning = BEGINNING,
    until: UntilEnd = END,
    follow: Annotated[bool, typer.Option("--follow", help="Without end: new records as they arrive.")] = False,
    partitions: Partitions = None,
    any_partition: Annotated[
        bool, typer.Option("--any-partition", help="Choose partitions by the keys, in place of the source's.")
    ] = False,
    expression: Filter = None,
    rate: Rate = None,
    properties: ClientProperties = None,
    to_properties: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file of client settings for the target's cluster.")
    ] = None,
) -> None:
    """Copy the records of a topic: keys, values, headers, timestamps, and the partitions that they are in.

    It ends where the source ended when it began. Records of transactions that were aborted or are open are left out.
    The target must be there, with as many partitions. Ctrl-C ends it and says how far it came; what was copied twice
    is there twice.

    Examples: `ottla copy orders orders-2`, `ottla copy orders orders --to-bootstrap-server other:9092`,
    `ottla copy orders orders --cluster production --to-cluster local`.
    """
    if follow and until != END:
        COMMAND.fail("--follow has no end; leave --until or --follow out")

    def work() -> int:
        task = _Task(source, target, follow, any_partition, rate, record_filter(COMMAND, expression))
        reading: dict[str, Any] = client_settings(shared, (), properties)
        other = _target_cluster(shared, to_servers, to_cluster)
        has_one_file = other is shared and to_properties is None
        writing = client_settings(other, (), properties if has_one_file else to_properties)
        numbers = parse_partitions(partitions)
        for settings in (reading, writing):
            settings.setdefault("request.timeout.ms", settings["default.api.timeout.ms"])
        with Admin(settings_for(ADMIN, reading)) as of_source, Admin(settings_for(ADMIN, writing)) as of_target:
            wanted = _partition_count(of_source, source, numbers)
            where = f"-b {writing[SERVERS]}" if to_cluster is None else f"--cluster {to_cluster}"
            _check_target(of_source, of_target, source, target, 0 if any_partition else wanted, where)
            _warn_of_retention(of_source, of_target, source, target)
        writing.setdefault("max.block.ms", writing.pop("default.api.timeout.ms"))
        if properties is not None and has_one_file:
            reading, writing = settings_for(CONSUMER, reading), settings_for(PRODUCER, writing)
        reading |= {**reading_settings(read_committed=True), "metadata.max.age.ms": NEW_PARTITIONS_MS}
        places = start, None if follow else until
        with Consumer(reading) as consumer, Producer(writing) as producer:
            copying = _Copying(task, producer)
            copying.reader = start_reading(
                COMMAND, consumer, [source], numbers, places, shared.timeout_s, on_wait=copying.look
            )
            copying.run()
        return _report(task, copying.sending, as_json=shared.as_json)

    from ottla.client.configs.settings import ADMIN, CONSUMER, PRODUCER
    from ottla.client.errors import ClientError
    from ottla.client.sync import Admin, Consumer, Producer

    COMMAND.run(work, (ClientError,))


def _target_cluster(shared: ClusterOptions, servers: str | None, name: str | None) -> ClusterOptions:
    """The cluster that is written; the source's where the options name none. Raises CommandError."""
    if name is not None and servers is not None:
        raise CommandError("--to-bootstrap-server and --to-cluster both say which cluster; leave one of them out")
    if name is not None:
        settings, _ = named_cluster(name)
        return ClusterOptions(settings[SERVERS], shared.timeout_s, settings=settings)
    return shared if servers is None else ClusterOptions(servers, shared.timeout_s)


@dataclass(frozen=True, slots=True)
class _Task:
    """The two topics, and how records are copied."""

    source: str
    target: str
    follow: bool
    any_partition: bool
    rate: float | None
    matches: Callable[[ConsumerRecord[Any, Any]], bool] | None


class _Copying:
    """Sends what the reader reads, and knows up to where that is written."""

    reader: TopicReader

    def __init__(self, task: _Task, producer: Producer[Any, Any]) -> None:
        from ottla.ops.record_rows import record_place

        self.sending = Sending(COMMAND, producer, task.rate, record_place, self._take, self._progress)
        self._task = task
        # By partition, the offset after the last record that was written, and that of the first that was not.
        self._copied: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def look(self) -> None:
        """Called where no records came. Raises CommandError where one was refused."""
        self.sending.settle_done()

    def run(self) -> None:
        """Copy all. Raises CommandError."""
        from ottla.ops.topic_copy import records_to

        task = self._task
        try:
            with self.sending.whole():
                for records in self.reader:
                    found = records if task.matches is None else list(filter(task.matches, records))
                    for _, group in groupby(found, lambda each: each.partition):
                        part = list(group)  # of a list for one partition it is known which records were written
                        self.sending.send(records_to(task.target, part, keep_partition=not task.any_partition), part)
        except (KeyboardInterrupt, CommandError):
            self._report_reached()
            raise

    def _take(self, records: Sequence[ConsumerRecord[Any, Any]], left: Sequence[int]) -> None:
        """Take what became of records of a partition; sent to several ones, all count as left where some are."""
        if left:
            first = records[0 if self._task.any_partition else left[0]]
            self._left.setdefault(first.partition, first.offset)
        if len(left) < len(records):
            self._copied[records[0].partition] = records[-1].offset + 1

    def _progress(self) -> str:
        passed = "" if self._task.follow else f", {passed_of(*self.reader.passed())} read"
        return f"{count(self.sending.record_count, 'record')} copied{passed}"

    def _report_reached(self) -> None:
        """Say up to which offset each partition is copied, and how to continue."""
        if not self._copied:
            return
        starts = {each.partition: start for each, start in self.reader.starts.items()}
        copied = starts | self._copied | self._left
        shown = [f"{self._task.source}-{each} before offset {copied[each]}" for each in sorted(copied)]
        more = "" if len(shown) <= MOST_PLACES else f" and {len(shown) - MOST_PLACES} partitions more"
        first = min(copied)
        COMMAND.report(
            f"copied: {', '.join(shown[:MOST_PLACES])}{more}; `-p {first} --from {copied[first]}` continues partition "
            f"{first}"
        )


def _partition_count(admin: Admin, topic: str, numbers: Sequence[int] | None) -> int:
    """Partitions that the target needs for these of the source."""
    from ottla.ops.topic_reading import chosen_partitions

    there = [each.partition for each in admin.describe_topics([topic])[topic].partitions]
    return 1 + max(each.partition for each in chosen_partitions(topic, there, numbers))


def _check_target(of_source: Admin, of_target: Admin, source: str, target: str, partitions: int, where: str) -> None:
    """Raises CommandError where the target is the source, is not there, or has too few partitions."""
    from ottla.client.errors import UnknownTopicError
    from ottla.ops.topic_copy import is_same_cluster

    if source == target and is_same_cluster(of_source, of_target):
        raise CommandError(
            f"{source} would be copied onto itself; name another TARGET_TOPIC, or another cluster with "
            "--to-bootstrap-server or --to-cluster"
        )
    try:
        there = len(of_target.describe_topics([target])[target].partitions)
    except UnknownTopicError as problem:
        raise CommandError(
            f"{problem}; `ottla topic create {target} -p {max(1, partitions)} {where}` makes it"
        ) from problem
    if there < partitions:
        raise CommandError(
            f"{target} has {count(there, 'partition')}, and {source} is read up to partition {partitions - 1}; `ottla "
            f"topic alter {target} -p {partitions} {where}` adds some, --any-partition chooses them by the keys"
        )


def _warn_of_retention(of_source: Admin, of_target: Admin, source: str, target: str) -> None:
    """Report where the target deletes records earlier than the source, by their timestamps."""
    long_ms, short_ms = _retention_ms(of_source, source), _retention_ms(of_target, target)
    if long_ms is not None and short_ms is not None and short_ms < long_ms:
        kept = "for ever" if long_ms == math.inf else f"for {duration(long_ms)}"
        COMMAND.report(
            f"{target} keeps records for {duration(short_ms)} (retention.ms), {source} {kept}; older ones are "
            "deleted from it"
        )


def _retention_ms(admin: Admin, topic: str) -> float | None:
    """Time that a topic keeps records, for ever where it is only compacted; None where it may not be read."""
    from ottla.client.admin.model import ConfigResource
    from ottla.client.errors import ClientError

    resource = ConfigResource.topic(topic)
    try:
        entries = admin.describe_configs([resource])[resource].values()
    except ClientError:
        return None
    found = {each.name: each.value for each in entries if each.value is not None}
    retention_ms = int(found.get("retention.ms", -1))
    return math.inf if retention_ms < 0 or "delete" not in found.get("cleanup.policy", "delete") else retention_ms


def _report(task: _Task, sending: Sending, *, as_json: bool) -> int:
    rows = sending.report_rows()
    if as_json:
        write_json({"source": task.source, "target": task.target, "records": sending.record_count, "partitions": rows})
    else:
        copied = count(sending.record_count, "record")
        Terminal.standard_output().line(f"{copied} copied from {task.source} to {task.target}{places_of(rows)}")
    return 0
