"""A cold read never stalls other clients: a disk that gives nothing until it is let go, under a running broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from e2e.embedded import EmbeddedBroker
from ottla.broker.cold_reads import MOST_ROUNDS
from ottla.env.disk import Disk, DiskFile, RealDisk
from ottla.storage.transaction_index import AbortedTransaction
from ottla.testing.disk_faulty import FaultyDisk, FaultyFile
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from support.raw_client import FETCH_V, LIST_OFFSETS_V, RawClient, batch_of, fetch_request, records_of
from support.waiting import wait_until

pytestmark = pytest.mark.spec("L6")

HELD_TIMEOUT_S = 60.0


class ColdDisk(FaultyDisk):
    """Files that match are not in the page cache: whoever reads them waits, until they are let go."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.pattern: str | None = None
        self.waiting = 0
        self._warm = threading.Event()

    def chill(self, pattern: str) -> None:
        """From now on files that match are cold."""
        self._warm.clear()
        self.pattern = pattern

    def let_go(self) -> None:
        """The disk has found what was asked."""
        self.pattern = None
        self._warm.set()

    def is_cold(self, path: str) -> bool:
        """Whether reading this waits."""
        return self.pattern is not None and fnmatchcase(path, self.pattern)

    def check(self, operation: str, path: str) -> None:
        """See `FaultyDisk.check`."""
        if operation == "read" and self.is_cold(path):
            self.waiting += 1
            assert self._warm.wait(HELD_TIMEOUT_S), f"nobody let {path} go"
        super().check(operation, path)

    def open(self, path: str, create: bool = False) -> DiskFile:
        """See `Disk.open`."""
        self.check("open", path)
        return _ColdFile(self, self.disk.open(path, create))


class _ColdFile(FaultyFile):
    __slots__ = ("_cold",)

    def __init__(self, disk: ColdDisk, file: DiskFile) -> None:
        super().__init__(disk, file)
        self._cold = disk

    def is_warm(self, position: int, length: int) -> bool | None:
        return not self._cold.is_cold(self.path) and super().is_warm(position, length)

    def read_warm(self, into: memoryview, position: int) -> bool:
        return not self._cold.is_cold(self.path) and super().read_warm(into, position)


@pytest.fixture
def disk() -> ColdDisk:
    return ColdDisk(RealDisk())


@pytest.fixture
def broker(tmp_path: Path, disk: ColdDisk) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(tmp_path / "data")
    made.disk = disk
    made.start()
    with RawClient(made.port) as client:
        assert client.create_topic("old", segment_bytes="20000") == 0
        assert client.create_topic("new") == 0
        for number in range(200):
            assert client.produce("old", 0, batch_of(b"%d" % number + b"." * 500)).error_code == 0
        assert client.produce("new", 0, batch_of(b"first")).error_code == 0
    yield made
    disk.let_go()
    made.stop()


def others_go_on(broker: EmbeddedBroker) -> None:
    """Whatever another client does has its answer while the first one waits for the disk."""
    with RawClient(broker.port) as other:
        for number in range(20):
            assert other.produce("new", 0, batch_of(b"%d" % number)).error_code == 0
        assert len(other.read_all("new", 0)) == 21
        assert other.topics() == {"old", "new"}
        assert other.produce("old", 0, batch_of(b"x")).error_code == 0, "appends to the same partition, too"


@pytest.mark.parametrize("offset", [0, 1, 57, 120])
def test_a_fetch_of_what_is_cold(broker: EmbeddedBroker, disk: ColdDisk, offset: int) -> None:
    disk.chill("*/old-0/*.log")
    with RawClient(broker.port) as cold:
        cold.send(fetch_request("old", 0, offset, max_wait_ms=0), FETCH_V)
        wait_until(lambda: disk.waiting, "the disk to be asked")
        others_go_on(broker)
        assert not cold.has_answer()
        disk.let_go()
        answer = cold.receive(FetchResponse, FETCH_V).responses[0].partitions[0]
        assert answer.error_code == 0
        assert records_of(answer.records, offset)[0].offset == offset


def test_a_fetch_whose_aborted_transactions_are_cold(
    broker: EmbeddedBroker, disk: ColdDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.storage.transaction_index.MOST_CACHED_ENTRIES", 0)
    broker.stop()
    index = broker.folder / "old-0" / f"{0:020d}.txnindex"
    index.write_bytes(AbortedTransaction(7, 3, 5, 6).encode() + AbortedTransaction(8, 4, 9, 10).encode())
    broker.start()
    request = fetch_request("old", 0, 6, max_wait_ms=0)
    request.isolation_level = 1
    disk.chill("*.txnindex")
    with RawClient(broker.port) as cold:
        cold.send(request, FETCH_V)
        wait_until(lambda: disk.waiting, "the disk to be asked")
        others_go_on(broker)
        assert not cold.has_answer()
        disk.let_go()
        answer = cold.receive(FetchResponse, FETCH_V).responses[0].partitions[0]
        assert records_of(answer.records, 6)[0].offset == 6
        assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()] == [(8, 4)]


def test_a_search_by_time_in_what_is_cold(broker: EmbeddedBroker, disk: ColdDisk) -> None:
    with RawClient(broker.port) as cold:
        (record,) = [record for record in cold.read_all("old", 0) if record.offset == 57]
        first = min(found.offset for found in cold.read_all("old", 0) if found.timestamp >= record.timestamp)
        disk.chill("*/old-0/*.log")
        wanted = ListOffsetsPartition(partition_index=0, timestamp=record.timestamp)
        topics = [ListOffsetsTopic(name="old", partitions=[wanted])]
        cold.send(ListOffsetsRequest(replica_id=-1, topics=topics), LIST_OFFSETS_V)
        wait_until(lambda: disk.waiting, "the disk to be asked")
        others_go_on(broker)
        disk.let_go()
        found = cold.receive(ListOffsetsResponse, LIST_OFFSETS_V).topics[0].partitions[0]
        assert (found.error_code, found.offset) == (0, first)


def test_a_page_cache_that_is_too_small(broker: EmbeddedBroker, disk: ColdDisk) -> None:
    """A page cache that is lost again and again does not keep a request going for ever."""
    with RawClient(broker.port) as cold:
        before = broker.broker.dispatcher.cold_reads
        disk.chill("*/old-0/*.log")
        disk.let_go()
        disk.pattern = "*/old-0/*.log"  # cold whenever asked, and given at once
        error, records = cold.fetch("old", 0, 30)
        assert error == 0
        assert records[0].offset == 30
        assert 0 < broker.broker.dispatcher.cold_reads - before <= 2 * MOST_ROUNDS
