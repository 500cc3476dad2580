"""Faults of a broker's log directory on this machine, seen without the broker."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.env.disk import Disk
from ottla.inspection.directories import LogDirectoryListing, NothingThere, look
from ottla.ops.doctor.faults import DoctorFault, FaultKind, fault
from ottla.ops.health.brokers import FILLING, FULL
from ottla.ops.health.findings import HealthKind
from ottla.storage.checkpoints import META_FILE, CheckpointError, decode_cluster_id
from ottla.storage.files import SEGMENT_SUFFIXES

OTHER_FILES = 1000
"""Open files that a broker needs for clients, other brokers, jars."""


def disk_faults(disk: Disk, path: str, open_files_limit: int, cluster_id: str | None) -> Iterator[DoctorFault]:
    """All faults of a log directory. Raises as `log_directory`."""
    listing = log_directory(disk, path)
    yield from space(disk, path)
    yield from open_files(listing, open_files_limit)
    yield from cluster(disk, listing, cluster_id)


def log_directory(disk: Disk, path: str) -> LogDirectoryListing:
    """A log directory. Raises DiskError, and NothingThere where it is none."""
    listing = look(disk, path)
    if not isinstance(listing, LogDirectoryListing):
        raise NothingThere(f"{path} is the directory of a partition; name the log directory above it")
    return listing


def space(disk: Disk, path: str) -> Iterator[DoctorFault]:
    """A volume that is full or nearly so."""
    total, usable = disk.space(path)
    if total and usable < FILLING * total:
        kind = HealthKind.DISK_FULL if usable < FULL * total else HealthKind.DISK_FILLING
        yield DoctorFault(
            kind.slug,
            path,
            f"its volume is {1 - usable / total:.0%} full",
            "Shorten the retention of large topics (`ottla topic alter TOPIC --config retention.bytes=…`), or enlarge "
            "the volume.",
        )


def open_files(listing: LogDirectoryListing, limit: int) -> Iterator[DoctorFault]:
    """A limit of open files that the segments, and the clients with them, reach."""
    count = sum(name.endswith(SEGMENT_SUFFIXES) for each in listing.partitions for name in each.names)
    if count + OTHER_FILES > limit:
        yield fault(
            FaultKind.TOO_FEW_OPEN_FILES,
            listing.path,
            f"a broker may open {limit:,} files, and needs about {count:,} for its segments and {OTHER_FILES:,} more",
            "Raise the limit: LimitNOFILE=100000 of its systemd unit, or `ulimit -n 100000` before its start.",
        )


def cluster(disk: Disk, listing: LogDirectoryListing, cluster_id: str | None) -> Iterator[DoctorFault]:
    """A directory of another cluster than the one that was asked, or whose file does not say."""
    if META_FILE not in listing.names:
        return
    path = f"{listing.path}/{META_FILE}"
    try:
        own = decode_cluster_id(disk.read_bytes(path), path)
    except CheckpointError:
        yield fault(
            FaultKind.DAMAGED_META,
            path,
            "it is damaged, or of a version that is not known: a broker does not start with it",
            "Restore it with the version, cluster.id and node.id (broker.id) that the broker's other log directories "
            "have, or from a backup.",
        )
        return
    if None not in (own, cluster_id) and own != cluster_id:
        yield fault(
            FaultKind.WRONG_CLUSTER,
            path,
            f"it names cluster {own}, and the brokers are of {cluster_id}: a broker of theirs does not start with it",
            "Give the broker its own directory (log.dirs), or the address of the cluster that this one belongs to.",
        )
