"""Implementation of `ottla log repair`: makes a plan from the findings of a check, and carries it out if requested.

Nothing is destroyed: bytes taken out of a log, and replaced files, are kept beside them as `….damaged`. A repair of
batch headers may reveal further damage, so a repair checks again until nothing repairable is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.env.disk import Disk, Lock
from ottla.env.file_reader import ReadableFile, is_locked_elsewhere
from ottla.inspection.directories import NothingThere, PartitionDirectory, base_name, directory_of, look
from ottla.inspection.file_names import read_name
from ottla.inspection.findings import LogFinding, Remedy, RemedyKind, Severity, Tally
from ottla.inspection.rebuild import INDEX_INTERVAL_BYTES, backup_name, rebuild_from_logs, rewrite_log
from ottla.inspection.small_files import read_whole
from ottla.inspection.verify import VerifyWish, verify
from ottla.storage.checkpoints import LOCK_FILE, encode_offsets

#: Limit on the rounds of one repair.
ROUNDS: Final = 5


class LogDirectoryInUse(Exception):
    """A broker is using the log directory; the message says which, and what to do."""


@dataclass(slots=True)
class Plan:
    """The findings of a check, and which of them can be repaired."""

    path: str
    findings: list[LogFinding] = field(default_factory=list)
    in_use: bool = False

    @property
    def to_repair(self) -> list[LogFinding]:
        """Findings with a remedy."""
        return [each for each in self.findings if each.remedy is not None]

    @property
    def beyond_repair(self) -> list[LogFinding]:
        """Damage without a remedy: lost data."""
        return [each for each in self.findings if each.remedy is None and each.severity is Severity.DAMAGE]


def make_plan(disk: Disk, path: str, wish: VerifyWish) -> Plan:
    """Check a directory. Raises DiskError, and NothingThere, also for a single file."""
    if not disk.is_dir(path):
        raise NothingThere(
            f"{path} is a file; repair takes the directory of a partition or a log directory, since its files depend "
            "on each other"
        )
    plan = Plan(path, in_use=is_locked_elsewhere(f"{_log_directory(disk, path)}/{LOCK_FILE}"))
    plan.findings = [each for each in verify(disk, path, wish, Tally()) if each.severity is not Severity.NOTICE]
    return plan


def carry_out(disk: Disk, path: str, wish: VerifyWish, interval: int = INDEX_INTERVAL_BYTES) -> Plan:
    """Repair what can be repaired, and return the rest. Raises DiskError, NothingThere, LogDirectoryInUse."""
    lock = _lock(disk, path)
    try:
        plan = make_plan(disk, path, wish)
        for _ in range(ROUNDS):
            if not plan.to_repair:
                break
            _repair(disk, [each.remedy for each in plan.to_repair if each.remedy is not None], interval)
            plan = make_plan(disk, path, wish)
        return plan
    finally:
        if lock is not None:
            lock.release()


def _log_directory(disk: Disk, path: str) -> str:
    return path if not isinstance(look(disk, path), PartitionDirectory) else directory_of(path)


def _lock(disk: Disk, path: str) -> Lock | None:
    """Lock the log directory against brokers; a copy outside of `log.dirs` has no lock file and needs none."""
    file = f"{_log_directory(disk, path)}/{LOCK_FILE}"
    if not disk.exists(file):
        return None
    lock = disk.lock(file)
    if lock is None:
        raise LogDirectoryInUse(f"{directory_of(file)} is in use by a broker; stop it first, then repair")
    return lock


def _repair(disk: Disk, remedies: Sequence[Remedy], interval: int) -> None:
    by_directory: dict[str, list[Remedy]] = defaultdict(list)
    for remedy in remedies:
        if remedy.kind is RemedyKind.SALVAGE:
            _salvage(disk, remedy.path)
        elif remedy.kind is RemedyKind.ASIDE:
            disk.rename(remedy.path, backup_name(disk, remedy.path))
        elif remedy.kind is RemedyKind.REPLACE:
            _keep_copy(disk, remedy.path)
            disk.write_atomic(remedy.path, remedy.content)
        else:
            by_directory[directory_of(remedy.path)].append(remedy)
    for path, theirs in by_directory.items():
        found = look(disk, path)
        if isinstance(found, PartitionDirectory):
            _repair_partition(disk, found, theirs, interval)


def _repair_partition(disk: Disk, partition_dir: PartitionDirectory, remedies: Sequence[Remedy], interval: int) -> None:
    segments: set[int] = set()
    logs: dict[int, list[Remedy]] = defaultdict(list)
    epochs = False
    for remedy in remedies:
        offset = read_name(base_name(remedy.path)).offset
        if remedy.kind is RemedyKind.EPOCHS:
            _keep_copy(disk, remedy.path)
            epochs = True
        elif offset is not None:
            segments.add(offset)
            if remedy.kind in (RemedyKind.CUT, RemedyKind.PATCH):
                logs[offset].append(remedy)
    for base_offset, theirs in logs.items():
        cuts = [(each.position, each.length) for each in theirs if each.kind is RemedyKind.CUT]
        patches = [patch for each in theirs for patch in each.patches]
        rewrite_log(disk, partition_dir, base_offset, cuts, patches, keep=any(each.keep for each in theirs))
    rebuild_from_logs(disk, partition_dir, segments, epochs, interval)


def _keep_copy(disk: Disk, path: str) -> None:
    with ReadableFile(path) as file:
        disk.write_atomic(backup_name(disk, path), read_whole(file))


def _salvage(disk: Disk, path: str) -> None:
    """Write an offset checkpoint with the readable lines."""
    with ReadableFile(path) as file:
        text = read_whole(file).decode("utf-8", "replace")
    offsets: dict[tuple[str, int], int] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 3 and all(field.isascii() and field.isdigit() for field in fields[1:]):
            offsets[fields[0], int(fields[1])] = int(fields[2])
    _keep_copy(disk, path)
    disk.write_atomic(path, encode_offsets(offsets))
