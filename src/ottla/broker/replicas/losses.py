"""Reports of lost records: what a replica lacked when it was elected without being in sync, what it had to remove.

A replica that removes records as a follower may lose some that were acknowledged: those that its leader, elected
without being in sync, never had. It cannot always know, since high watermarks are on the disk every few seconds only.
So each removal is reported here, with what is known of it; together with the reports of elections, which are another
broker's, they say what was lost (`ottla.ops.cluster_status`). The reports survive restarts in a file of the first
log directory (why: docs/decisions/0093-reports-of-lost-records.md).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ottla.broker.replicas.partition import Partition
from ottla.env.disk import Disk, DiskError
from ottla.env.executor import Executor
from ottla.wire.errors import WireError
from ottla.wire.lost_records import UNKNOWN, LostRecords, decode_lost_records, encode_lost_records

log = logging.getLogger("ottla.replicas")

#: The file, in the first log directory.
LOST_RECORDS_FILE: Final = "ottla-lost-records"
#: Reports kept: the newest of each partition, of the partitions that were reported about last.
PER_PARTITION: Final = 16
MOST_PARTITIONS: Final = 10_000
#: Reports are forgotten after thirty days.
KEPT_MS: Final = 30 * 24 * 3600 * 1000

PartitionKey = tuple[str, int]


class LossReports:
    """The reports of one broker, and their counts since its start; `store` gets the file's content when it changes."""

    def __init__(self, now_ms: Callable[[], int], store: Callable[[bytes], None] = lambda _: None) -> None:
        self._now_ms = now_ms
        self.store = store
        self._reports: dict[PartitionKey, list[LostRecords]] = {}
        #: Records removed as a follower; those of them that were committed; elections without being in sync.
        self.removed_records = 0
        self.lost_records = 0
        self.unclean_leaderships = 0

    def of(self, topic: str, index: int) -> Sequence[LostRecords]:
        """The reports about a partition, oldest first."""
        return self._reports.get((topic, index), ())

    def elected(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Note that the partition's replica is about to lead without having been in sync.

        A leader without followers since is elected again in the same state; only the first time counts.
        """
        hosted = partition.log
        key = (partition.topic, partition.index)
        start, committed = hosted.log_end_offset, partition.reported_committed_end
        known = self._reports.get(key, [])
        if known and known[-1].is_election and known[-1].leader_epoch == hosted.leader_epoch:
            known[-1] = known[-1]._replace(leader_epoch=leader_epoch)
            self.store(self.encoded())
            return
        self.unclean_leaderships += 1
        end = committed if committed > start else UNKNOWN
        log.error(
            "%s: this broker leads in epoch %d without having been in sync, from offset %d on. What other replicas "
            "have from there on is lost%s",
            hosted.name,
            leader_epoch,
            start,
            f": {end - start} committed records, up to offset {end}, at least" if end != UNKNOWN else "",
        )
        self._add(key, LostRecords(True, start, end, end, (), leader_id, leader_epoch, self._now_ms()))

    def removed(
        self, partition: Partition, start: int, end: int, committed_end: int, epochs: tuple[int, ...], leader_id: int
    ) -> None:
        """Note that a follower has removed the records from `start` to `end`, of which some may have been committed.

        What is removed in several steps for one leader is one report.
        """
        name, leader_epoch = partition.log.name, partition.leader_epoch
        self.removed_records += end - start
        lost = max(0, min(committed_end, end) - start)
        self.lost_records += lost
        log.log(
            logging.ERROR if lost else logging.INFO,
            "%s: removed the records from %d to %d (leader epochs %s), which broker %d does not have as leader in "
            "epoch %d%s",
            name,
            start,
            end - 1,
            ", ".join(map(str, epochs)) or "unknown",
            leader_id,
            leader_epoch,
            f". {lost} of them were committed, and are lost" if lost else "",
        )
        committed_end = committed_end if lost else UNKNOWN
        key = (partition.topic, partition.index)
        report = LostRecords(False, start, end, committed_end, epochs, leader_id, leader_epoch, self._now_ms())
        known = self._reports.get(key)
        if known and (known[-1].is_election, known[-1].leader_epoch, known[-1].start) == (False, leader_epoch, end):
            last = known.pop()
            report = report._replace(
                end=last.end,
                committed_end=max(committed_end, last.committed_end),
                epochs=tuple(sorted({*epochs, *last.epochs})),
            )
        self._add(key, report)

    def _add(self, key: PartitionKey, report: LostRecords) -> None:
        reports = [*self._reports.pop(key, ()), report]
        self._reports[key] = reports[-PER_PARTITION:]
        while len(self._reports) > MOST_PARTITIONS:
            del self._reports[next(iter(self._reports))]
        self.store(self.encoded())

    def forget(self, topic: str, index: int) -> None:
        """Forget a partition that was deleted."""
        if self._reports.pop((topic, index), None) is not None:
            self.store(self.encoded())

    # -- the file: a JSON list of topic, partition and reports

    def encoded(self) -> bytes:
        """The content of the file."""
        lines = [
            json.dumps([topic, index, encode_lost_records(reports).decode()])
            for (topic, index), reports in self._reports.items()
        ]
        return "".join(f"{line}\n" for line in lines).encode()

    def load(self, data: bytes) -> None:
        """Take over the content of the file, without what is too old. Raises WireError if it is damaged."""
        oldest_ms = self._now_ms() - KEPT_MS
        for line in data.splitlines():
            try:
                topic, index, text = json.loads(line)
                reports = [each for each in decode_lost_records(text.encode()) if each.at_ms >= oldest_ms]
            except (ValueError, TypeError, AttributeError) as error:
                raise WireError(str(error)) from None
            if reports:
                self._reports[str(topic), int(index)] = reports


class LossFile:
    """Writes the file in disk threads, one version after the other."""

    def __init__(self, disk: Disk, executor: Executor, log_dir: str) -> None:
        self._disk = disk
        self._executor = executor
        self._path = f"{log_dir}/{LOST_RECORDS_FILE}"
        self._due: bytes | None = None
        self._is_writing = False

    def read(self) -> bytes:
        """The content; empty if the file is missing, or cannot be read."""
        try:
            return self._disk.read_bytes(self._path) if self._disk.exists(self._path) else b""
        except DiskError as error:
            log.warning("the reports of lost records cannot be read: %s", error)
            return b""

    def write(self, data: bytes) -> None:
        """Write soon; later data replaces what is not written yet."""
        self._due = data
        self._write_next()

    def close(self) -> None:
        """Write what is due."""
        self._is_writing = True
        self._write(self._due)

    def _write_next(self) -> None:
        if self._is_writing or self._due is None:
            return
        data, self._due, self._is_writing = self._due, None, True

        def written(_result: object, error: BaseException | None) -> None:
            self._is_writing = False
            if error is None:
                self._write_next()

        self._executor.call(lambda: self._write(data), written)

    def _write(self, data: bytes | None) -> None:
        if data is None:
            return
        try:
            self._disk.write_atomic(self._path, data)
        except DiskError as error:
            log.warning("the reports of lost records cannot be stored: %s", error)


def epochs_between(entries: Iterable[tuple[int, int]], start: int, end: int) -> tuple[int, ...]:
    """The leader epochs of the records from `start` to `end`; `entries` are the epochs with their first offsets."""
    found: list[int] = []
    for epoch, first in entries:
        if first >= end:
            break
        if first <= start:
            found.clear()  # an older epoch ended before
        found.append(epoch)
    return tuple(found)
