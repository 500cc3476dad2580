"""Damage in the log of committed offsets, after a clean stop: what is behind it counts, now and at every start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.embedded import EmbeddedBroker
from support.raw_client import RawClient
from support.waiting import wait_until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    running = EmbeddedBroker(tmp_path, offsets_topic_num_partitions="1").start()
    yield running
    running.stop()


@pytest.mark.spec("G11", "L9")
@pytest.mark.parametrize("what", ["a bit of a record", "the length", "the offset"])
def test_commits_behind_a_damaged_batch_are_known_and_new_ones_stay(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, tmp_path: Path, what: str
) -> None:
    with RawClient(broker.port) as client:
        assert client.create_topic("t") == 0
        assert client.find_coordinator("g") == 0
        for number in range(5):
            assert client.commit(f"g{number}", "t", 0, 10 + number) == 0
    broker.stop()
    (path,) = tmp_path.rglob("__consumer_offsets-0/*.log")
    data = bytearray(path.read_bytes())
    batches = [0]
    while (following := batches[-1] + 12 + int.from_bytes(data[batches[-1] + 8 : batches[-1] + 12], "big")) < len(data):
        batches.append(following)
    damaged = batches[len(batches) // 2]
    data[damaged + {"a bit of a record": 70, "the length": 10, "the offset": 7}[what]] ^= 0x10
    path.write_bytes(data)
    broker.start()
    with RawClient(broker.port) as client:
        wait_until(lambda: client.committed("g4", "t", 0) == (0, 14), "the last commit")
        assert client.committed("g0", "t", 0) == (0, 10)
        assert [client.committed(f"g{number}", "t", 0)[1] for number in range(5)].count(-1) == 1, "the damaged one"
        assert client.commit("new", "t", 0, 77) == 0
    broker.restart()
    with RawClient(broker.port) as client:
        wait_until(lambda: client.committed("new", "t", 0) == (0, 77), "the new commit")
    told = [record.getMessage() for record in caplog.records if f"at position {damaged}" in record.getMessage()]
    if what == "a bit of a record":
        assert len(told) == 2, "at each start"
        for each in told:
            assert "__consumer_offsets-0 is damaged" in each
            assert "the records of offsets 2 to 2" in each
    else:
        # What stands outside the checksum is seen when the log is opened, and the batch is taken out.
        assert ["records may be missing from offset 2 on" in each for each in told] == [True]
