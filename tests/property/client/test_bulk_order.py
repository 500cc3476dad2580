"""Rows of one partition keep the order of the input, whichever of them have keys: `send_many` and `send_arrow`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client import ProducerRecord
from support.client_facades import FACADES, Facade
from support.fake_cluster import FakeCluster
from support.random_cases import cases

PARTITIONERS = [None, "RoundRobinPartitioner", "UniformStickyPartitioner", "DefaultPartitioner"]
topic_numbers = count()

#: Of a row: its key, the partition it asks for, whether it is a ProducerRecord.
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, None, b"a", b"b", b"c", b"d"]),
        st.sampled_from([None] * 6 + [0]),
        st.sampled_from([0, 1]),
    ),
    max_size=300,
)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    cluster = FakeCluster(1)
    yield cluster
    cluster.close()


@pytest.fixture(params=FACADES, scope="module")
def facade(request: Any) -> Iterator[Facade]:
    made = Facade(request.param)
    yield made
    made.close()


def check(fake: FakeCluster, partitions: list[Any], rows: list[Any], *, ignores_keys: bool) -> None:
    seen = []
    for partition in partitions:
        records = fake.logs[partition].records()
        numbers = [int(record.value[:6]) for record in records]
        assert numbers == sorted(numbers), f"{partition}: {numbers}"
        assert [record.key for record in records] == [rows[number][0] for number in numbers]
        assert all(rows[number][1] in (None, partition.partition) for number in numbers)
        seen += numbers
    assert sorted(seen) == list(range(len(rows)))
    if not ignores_keys:
        for key in {row[0] for row in rows if row[0] is not None and row[1] is None}:
            homes = {
                partition
                for partition in partitions
                for record in fake.logs[partition].records()
                if record.key == key and rows[int(record.value[:6])][1] is None
            }
            assert len(homes) == 1


@settings(max_examples=cases(40))
@given(
    rows=ROWS,
    partition_count=st.integers(1, 4),
    size=st.integers(0, 60),
    max_request_size=st.sampled_from([300, 700, 2000, 100_000]),
    batch_size=st.sampled_from([0, 100, 16384]),
    partitioner=st.sampled_from(PARTITIONERS),
    ignores_keys=st.booleans(),
    from_iterator=st.booleans(),
)
def test_send_many_keeps_the_order(
    fake: FakeCluster,
    facade: Facade,
    rows: list[Any],
    partition_count: int,
    size: int,
    max_request_size: int,
    batch_size: int,
    partitioner: str | None,
    ignores_keys: bool,
    from_iterator: bool,
) -> None:
    topic = f"many-{next(topic_numbers)}"
    partitions = fake.topic(topic, *[0] * partition_count)
    if partitioner == "RoundRobinPartitioner":
        ignores_keys = True
    records = [
        ProducerRecord(topic, b"%06d" % at + bytes(size), key, partition)
        if is_record or partition is not None
        else (key, b"%06d" % at + bytes(size))
        for at, (key, partition, is_record) in enumerate(rows)
    ]
    with facade.producer(
        bootstrap_servers=fake.bootstrap,
        max_request_size=max_request_size,
        batch_size=batch_size,
        partitioner_class=partitioner,
        partitioner_ignore_keys=ignores_keys,
    ) as producer:
        producer.send_many(iter(records) if from_iterator else records, topic)
        producer.flush()
    check(fake, partitions, rows, ignores_keys=ignores_keys or partitioner == "UniformStickyPartitioner")


@settings(max_examples=cases(40))
@given(
    rows=ROWS,
    partition_count=st.integers(1, 4),
    size=st.integers(0, 60),
    max_request_size=st.sampled_from([300, 700, 2000, 100_000]),
    batch_size=st.sampled_from([0, 100, 16384]),
    ignores_keys=st.booleans(),
    with_partitions=st.booleans(),
    chunk=st.sampled_from([7, 1000]),
)
def test_send_arrow_keeps_the_order(
    fake: FakeCluster,
    facade: Facade,
    rows: list[Any],
    partition_count: int,
    size: int,
    max_request_size: int,
    batch_size: int,
    ignores_keys: bool,
    with_partitions: bool,
    chunk: int,
) -> None:
    topic = f"arrow-{next(topic_numbers)}"
    partitions = fake.topic(topic, *[0] * partition_count)
    if not with_partitions:
        rows = [(key, None, 0) for key, _, _ in rows]
    columns: dict[str, Any] = {
        "key": pyarrow.array([key for key, _, _ in rows], pyarrow.binary()),
        "value": pyarrow.array([b"%06d" % at + bytes(size) for at in range(len(rows))], pyarrow.binary()),
    }
    if with_partitions:
        columns["partition"] = pyarrow.array([partition for _, partition, _ in rows], pyarrow.int32())
    table = pyarrow.table(columns)
    pieces = [table.slice(at, chunk) for at in range(0, table.num_rows, chunk)]
    with facade.producer(
        bootstrap_servers=fake.bootstrap,
        max_request_size=max_request_size,
        batch_size=batch_size,
        partitioner_ignore_keys=ignores_keys,
    ) as producer:
        producer.send_arrow(pyarrow.concat_tables(pieces) if pieces else table, topic)
        producer.flush()
    check(fake, partitions, rows, ignores_keys=ignores_keys)
