"""`ottla topic count`: the records of topics, by their offsets or counted one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.options import ClusterOptions
from ottla.cli.progress import Progress, passed_of
from ottla.cli.record_options import client_settings, parse_partitions, parse_position
from ottla.cli.record_reading import END, reading_settings, start_reading
from ottla.cli.terminal import Terminal, count, write_json
from ottla.cli.topic import COMMAND
from ottla.cli.topic.offsets import read_offsets
from ottla.client.model import TopicPartition
from ottla.client.sync import Consumer

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster


async def count_offsets(
    cluster: Cluster, topics: Sequence[str], partitions: str | None, start: str, *, as_json: bool
) -> int:
    """Show how many offsets lie between a place and the end; returns the exit code."""
    position = parse_position("--from", start, cluster.clock.now_ms())
    rows = await read_offsets(cluster, topics, parse_partitions(partitions), position)
    counts = {row.partition: row.end - (row.start if row.at is None else row.at) for row in rows}
    _show(counts, as_json=as_json, is_exact=False)
    return 0


def count_records(
    shared: ClusterOptions, topics: Sequence[str], partitions: str | None, start: str, *, read_committed: bool
) -> int:
    """Read the topics to the end that they have now and show how many records there are; returns the exit code."""
    settings = client_settings(shared, (), None)
    found: Counter[TopicPartition] = Counter()
    with Consumer(settings | reading_settings(read_committed=read_committed)) as consumer:

        def reached() -> str:
            return f"{count(found.total(), 'record')}, {passed_of(*reader.passed())} read"

        progress = Progress(reached)
        numbers, places = parse_partitions(partitions), (start, END)
        reader = start_reading(
            COMMAND, consumer, list(dict.fromkeys(topics)), numbers, places, shared.timeout_s, on_wait=progress.show
        )
        found.update(dict.fromkeys(reader.reached(), 0))
        try:
            for records in reader:
                found.update(TopicPartition(each.topic, each.partition) for each in records)
                progress.show()
        except KeyboardInterrupt:
            COMMAND.report(f"interrupted; {reached()}")
            raise
        finally:
            progress.clear()
    _show(found, as_json=shared.as_json, is_exact=True)
    return 0


def _show(counts: Mapping[TopicPartition, int], *, as_json: bool, is_exact: bool) -> None:
    name = "records" if is_exact else "offsets"
    for topic in dict.fromkeys(each.topic for each in counts):
        of_topic = {each.partition: counts[each] for each in sorted(counts) if each.topic == topic}
        total = sum(of_topic.values())
        if as_json:
            rows = [{"partition": partition, name: number} for partition, number in of_topic.items()]
            write_json({"topic": topic, name: total, "partitions": rows})
        elif is_exact:
            Terminal.standard_output().line(f"{topic}: {count(total, 'record')}")
        else:
            Terminal.standard_output().line(
                f"{topic}: at most {count(total, 'record')}, by the offsets; --exact reads and counts them"
            )
