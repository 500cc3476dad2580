"""The mirror between two brokers: names, both directions, what is followed, what is sent again, translated offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.admin.model import ConfigResource
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Client
from ottla.records.record import Record
from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.mirroring.formats import GroupCheckpoint
from ottla.spark.pipelines.mirroring.origins import ORIGIN
from ottla.spark.pipelines.mirroring.start import start_mirror
from ottla.spark.pipelines.queries.ending import why_it_ended
from ottla.spark.pipelines.settings.model import MirrorSettings, PipelineKind, PipelineSettings, TriggerSettings
from support.filled_topics import add_partitions, fill_topic, read_topic
from support.mirrors import read_counts
from support.ottla_server import OttlaServer
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.brokers import Bootstrapped

pytestmark = pytest.mark.spec("R6")

TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def other_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    """A second cluster of one broker."""
    settings = {"group.initial.rebalance.delay.ms": "0", "log.retention.ms": "-1", "offsets.topic.num.partitions": "4"}
    server = OttlaServer(tmp_path_factory.mktemp("other"), overrides=settings)
    try:
        yield server.start()
    finally:
        server.stop()


def pipeline(
    source: Bootstrapped, target: Bootstrapped, unique: str, folder: Path, *, once: bool = True, **settings: Any
) -> PipelineSettings:
    """A mirror of this test's topics. Aliases are `west` and `east`, unless the test gives others."""
    values = {
        "source_alias": "west",
        "target_alias": "east",
        "topics": f"{unique}.*",
        "groups": f"{unique}.*",
        "group_id": f"mirror-{unique}-{settings.get('source_alias', 'west')}",
        "refresh_interval_ms": 500,
    }
    mirror = MirrorSettings(
        source_bootstrap_servers=source.bootstrap, target_bootstrap_servers=target.bootstrap, **(values | settings)
    )
    return PipelineSettings(
        name=f"{unique}-{mirror.source_alias}",
        kind=PipelineKind.mirror,
        checkpoint=str(folder / f"checkpoint-{mirror.source_alias}"),
        trigger=TriggerSettings(interval_ms=100, available_now=once),
        mirror=mirror,
    )


def run(spark: SparkSession, settings: PipelineSettings) -> None:
    """Mirror what there is."""
    start_mirror(spark, settings).awaitTermination()


@contextmanager
def running(spark: SparkSession, *pipelines: PipelineSettings) -> Iterator[None]:
    """Mirrors that run until the end of the block."""
    queries = [start_mirror(spark, each) for each in pipelines]
    try:
        yield
        for query in queries:
            assert query.exception() is None
    finally:
        for query in queries:
            query.stop()


def contents(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """All of each record but its offset."""
    return [(each.timestamp, each.key, each.value, tuple(each.headers)) for each in records]


def numbered(first: int, count: int) -> list[Record]:
    """Records with values that tell them apart."""
    now = round(time.time() * 1_000)
    return [Record(0, now + n, b"k%d" % (n % 5), b"v%d" % n) for n in range(first, first + count)]


def values(broker: Bootstrapped, topic: str) -> list[list[bytes | None]]:
    """The values of a topic's records, by partition."""
    return [[each.value for each in records] for records in read_topic(broker, topic)]


def checkpoints(broker: Bootstrapped, alias: str, group: str) -> dict[TopicPartition, tuple[int, int]]:
    """Upstream and downstream offset of a group's newest checkpoints."""
    found = {}
    for record in read_topic(broker, f"{alias}.checkpoints.internal")[0]:
        checkpoint = GroupCheckpoint.decode(record.key, record.value)
        if checkpoint.group == group:
            found[checkpoint.partition] = (checkpoint.upstream_offset, checkpoint.downstream_offset)
    return found


def test_records_equal_and_offsets_are_translated(
    spark: SparkSession, shared_ottla_server: OttlaServer, other_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    now = round(time.time() * 1_000)
    records = [
        [
            Record(
                0, now + n, b"k%d" % n if n % 3 else None, b"v%d" % n if n % 5 else None, (("h", b"%d" % n),) * (n % 3)
            )
            for n in range(700)
        ],
        [Record(0, now - n, b"x", b"y" * n) for n in range(300)],
        [],
    ]
    fill_topic(shared_ottla_server, unique, records, config={"max.message.bytes": "2000000"})
    fill_topic(shared_ottla_server, f"{unique}-not.internal", [records[1]])
    fill_topic(shared_ottla_server, f"east.{unique}", [records[1]])
    group, remote = f"{unique}-readers", f"west.{unique}"
    with Client(shared_ottla_server.bootstrap) as client:
        client.commit(group, {TopicPartition(unique, 0): 700, TopicPartition(unique, 1): 123})
    run(
        spark,
        pipeline(
            shared_ottla_server, other_server, unique, tmp_path, topics=rf".*{unique}.*", max_offsets_per_trigger=400
        ),
    )
    mirrored = read_topic(other_server, remote)
    assert [contents(each) for each in mirrored] == [contents(each) for each in read_topic(shared_ottla_server, unique)]
    with Admin(bootstrap_servers=other_server.bootstrap) as admin:
        topics = admin.list_topics()
        configs = admin.describe_configs([ConfigResource.topic(remote)])[ConfigResource.topic(remote)]
    assert not [name for name in topics if "not.internal" in name or "east." in name]
    assert configs["max.message.bytes"].value == "2000000"
    assert configs["retention.ms"].value == "-1"
    found = checkpoints(other_server, "west", group)
    assert found[TopicPartition(remote, 0)] == (700, 700), "the end of a partition is the end of its mirror"
    upstream, downstream = found[TopicPartition(remote, 1)]
    assert upstream == 123
    assert 100 < downstream <= 123, "never ahead, and not far behind"


def test_a_batch_that_is_sent_again_keeps_the_order_and_is_counted(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    other_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [numbered(0, 250), numbered(0, 50)]
    fill_topic(shared_ottla_server, unique, records)
    settings = pipeline(shared_ottla_server, other_server, unique, tmp_path, max_offsets_per_trigger=120)
    assert settings.mirror is not None
    for nth in (1, 2, 4):  # Before the syncs of the first batch, after them, after those of the second.
        reached = 0

        def fail_at_nth(point: str, nth: int = nth) -> None:
            nonlocal reached
            reached += point == crash_points.MIRROR_PRODUCED
            if reached == nth:
                raise RuntimeError("killed here")

        monkeypatch.setattr(crash_points, "on_reached", fail_at_nth)
        with pytest.raises(Exception, match="killed here"):
            run(spark, settings)
    monkeypatch.setattr(crash_points, "on_reached", None)
    run(spark, settings)
    mirrored = values(other_server, f"west.{unique}")
    figures = read_counts(settings.mirror)
    for number, sent in enumerate(records):
        assert list(dict.fromkeys(mirrored[number])) == [each.value for each in sent], "first appearances, in order"
        again = len(mirrored[number]) - len(sent)
        assert again > 0
        counted = figures[TopicPartition(unique, number)]
        assert (counted.records - len(sent), counted.repeated) <= (again, again)
        assert counted.repeated == again
    group = f"{unique}-late"
    with Client(shared_ottla_server.bootstrap) as client:
        client.commit(group, {TopicPartition(unique, 0): 250})
    run(spark, settings)
    remote = TopicPartition(f"west.{unique}", 0)
    assert checkpoints(other_server, "west", group)[remote] == (250, len(mirrored[0]))


def test_both_directions_with_unchanged_names_do_not_loop(
    spark: SparkSession, shared_ottla_server: OttlaServer, other_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    west, east = shared_ottla_server, other_server
    fill_topic(west, unique, [numbered(0, 30), []])
    fill_topic(east, unique, [numbered(100, 20), numbered(200, 10)])
    fill_topic(east, f"{unique}-of-east", [numbered(300, 5)])
    there = pipeline(west, east, unique, tmp_path, once=False, unchanged_names=True)
    back = pipeline(
        east, west, unique, tmp_path, once=False, unchanged_names=True, source_alias="east", target_alias="west"
    )

    def are_equal() -> bool:
        found = [values(broker, unique) for broker in (west, east)]
        return [[len(records) for records in each] for each in found] == [[50, 10]] * 2

    with running(spark, there, back):
        wait_until(are_equal, "both have all", timeout_s=TIMEOUT_S)
        fill_topic(west, unique, [numbered(30, 10), []], create=False)
        fill_topic(east, f"{unique}-of-east", [numbered(305, 5)], create=False)

        def have_more() -> bool:
            return len(values(east, unique)[0]) == 60 and len(values(west, f"{unique}-of-east")[0]) == 10

        wait_until(have_more, "what was added", timeout_s=TIMEOUT_S)
    # What one sent last would have come back by now if it came back at all: it is behind what arrived.
    for broker, others in ((west, b"east"), (east, b"west")):
        kept = read_topic(broker, unique)
        assert sorted(each.value or b"" for each in kept[0]) == sorted(
            b"v%d" % n for n in (*range(40), *range(100, 120))
        )
        came = {(ORIGIN, others)}
        assert all({*each.headers} in (set(), came) for each in kept[0])
        assert [(ORIGIN, others) in each.headers for each in kept[0]].count(True) == (20 if others == b"east" else 40)


def test_topics_partitions_and_settings_are_followed_while_it_runs(
    spark: SparkSession, shared_ottla_server: OttlaServer, other_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    source, target, remote = shared_ottla_server, other_server, f"west.{unique}"
    fill_topic(source, unique, [numbered(0, 3)], config={"segment.bytes": "1048576"})
    topic, mirrored = ConfigResource.topic(unique), ConfigResource.topic(remote)
    with (
        Admin(bootstrap_servers=source.bootstrap) as source_admin,
        Admin(bootstrap_servers=target.bootstrap) as target_admin,
        Client(source.bootstrap) as client,
        running(spark, pipeline(source, target, unique, tmp_path, once=False)),
    ):
        assert target_admin.describe_configs([mirrored])[mirrored]["segment.bytes"].value == "1048576"
        add_partitions(source, unique, 3)
        fill_topic(source, unique, [numbered(3, 2), [], numbered(5, 4)], create=False)
        fill_topic(source, f"{unique}-new", [[], numbered(0, 7)])
        source_admin.incremental_alter_configs(
            {topic: {"segment.bytes": None, "retention.ms": "86400000", "min.insync.replicas": "1"}}
        )

        def has_settings() -> bool:
            found = target_admin.describe_configs([mirrored])[mirrored]
            own = {name for name, entry in found.items() if entry.source == "DYNAMIC_TOPIC_CONFIG"}
            return found["retention.ms"].value == "86400000" and not {"segment.bytes", "min.insync.replicas"} & own

        wait_until(has_settings, "changed settings", timeout_s=TIMEOUT_S)
        wait_until(lambda: f"{remote}-new" in target_admin.list_topics(), "the new topic", timeout_s=TIMEOUT_S)
        wait_until(
            lambda: [len(each) for each in values(target, remote)] == [5, 0, 4], "new partitions", timeout_s=TIMEOUT_S
        )
        wait_until(
            lambda: [len(each) for each in values(target, f"{remote}-new")] == [0, 7],
            "its records",
            timeout_s=TIMEOUT_S,
        )
        group = f"{unique}-readers"
        client.commit(group, {TopicPartition(unique, 2): 4})
        wait_until(
            lambda: checkpoints(target, "west", group) == {TopicPartition(remote, 2): (4, 4)},
            "a group's offsets, without new records",
            timeout_s=TIMEOUT_S,
        )
        lag_of = TopicPartition(unique, 0)
        wait_until(lambda: client.committed(f"mirror-{unique}-west", [lag_of]) == {lag_of: 5}, "the mirror's own group")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"source_alias": "east"}, "both 'east'"),
        ({"target_alias": "a.b"}, "cannot begin a topic's name"),
        ({"topics": "("}, "topics: '\\(' is not a regular expression"),
        ({"groups": "*"}, "groups: '\\*' is not a regular expression"),
        ({"target_settings": {"acks": "1"}}, "target_settings: a mirror needs acks=all"),
        ({"source_settings": {"fetch.max.byte": "1"}}, "no client has a setting 'fetch.max.byte'"),
        (
            {"source_settings": {"security.protocol": "SASL_SSL"}},
            "sasl.mechanism=GSSAPI .Kerberos, the default. logs in by",
        ),
        ({"source_settings": {"group.id": "x"}}, "group.id is not given here"),
        ({"refresh_interval_ms": 0}, "refresh_interval_ms is 0"),
        ({}, "are of the same cluster"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    given: dict[str, Any],
    complaint: str,
) -> None:
    with pytest.raises(PipelineSettingsError, match=complaint):
        start_mirror(spark, pipeline(shared_ottla_server, shared_ottla_server, unique, tmp_path, **given))


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    """A cluster that takes small records only."""
    server = OttlaServer(tmp_path_factory.mktemp("small"), overrides={"message.max.bytes": "1000"})
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.mark.parametrize("way", ["the target takes it", "the source forgets it"])
def test_a_record_that_the_target_refuses_is_named_and_both_ways_lead_on(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    small_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    way: str,
) -> None:
    records = numbered(0, 10)
    records[6] = Record(0, records[6].timestamp, b"k", bytes(range(256)) * 20)
    fill_topic(shared_ottla_server, unique, [records])
    settings = pipeline(shared_ottla_server, small_server, unique, tmp_path)
    with pytest.raises(Exception, match="STREAM_FAILED") as failed:
        run(spark, settings)
    sentence = str(why_it_ended(failed.value))
    assert f"the target's topic west.{unique} refuses the record {unique}-0@6 of the source" in sentence
    with Admin(bootstrap_servers=shared_ottla_server.bootstrap) as admin:
        if way == "the target takes it":
            admin.incremental_alter_configs({ConfigResource.topic(unique): {"max.message.bytes": "100000"}})
        else:
            admin.delete_records({TopicPartition(unique, 0): 7})
    run(spark, settings)
    [found] = values(small_server, f"west.{unique}")
    refused = set() if way == "the target takes it" else {records[6].value}
    assert set(found) == {each.value for each in records} - refused
