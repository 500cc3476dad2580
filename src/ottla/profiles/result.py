"""The result of a run: its figures, and the promises that it broke."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ottla.profiles.checker import Checked
from ottla.profiles.latencies import Latencies
from ottla.profiles.producing import ProducerResult
from ottla.profiles.workload import MARK_PER_S, ProfileLoad

BYTES_PER_MB = 1e6


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """The figures of a run. Times are seconds or milliseconds, MB are 10^6 bytes of values.

    `of_mark` is the share of a million records a second; `brokers_cpu_s` is None for a cluster that was there before.
    `alone_per_s` is what a core makes a second without producing.
    """

    profile: str
    producers: int
    partitions: int
    replication_factor: int
    record_bytes: int
    handed_over: int
    acknowledged: int
    not_acknowledged: int
    seconds: float
    records_per_s: float
    mb_per_s: float
    of_mark: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    brokers_cpu_s: float | None
    producers_cpu_s: float
    alone_per_s: float
    check_s: float
    read: int
    lost: int
    doubled: int
    reordered: int
    strange: int
    disturbed: bool
    broken: tuple[str, ...]
    errors: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """The figures as a JSON object."""
        return asdict(self)


def result_of(
    load: ProfileLoad,
    results: Sequence[ProducerResult],
    checked: Checked,
    *,
    check_s: float,
    brokers_cpu_s: float | None,
) -> ProfileResult:
    """Put together what the producers did and what the checker found."""
    latencies = Latencies()
    for each in results:
        latencies.merge(Latencies(each.latencies))
    acknowledged = sum(each.acknowledged for each in results)
    refused = sum(each.refused for each in results)
    seconds = max((each.elapsed_s for each in results), default=0.0)
    per_s = acknowledged / seconds if seconds else 0.0
    p99_ms = latencies.percentile_ms(99)
    return ProfileResult(
        profile=str(load.workload.name),
        producers=load.producers,
        partitions=load.partitions,
        replication_factor=load.replication_factor or load.workload.replication_factor,
        record_bytes=load.record_bytes,
        handed_over=sum(each.handed_over for each in results),
        acknowledged=acknowledged,
        not_acknowledged=refused,
        seconds=seconds,
        records_per_s=per_s,
        mb_per_s=per_s * load.record_bytes / BYTES_PER_MB,
        of_mark=per_s / MARK_PER_S,
        p50_ms=latencies.percentile_ms(50),
        p99_ms=p99_ms,
        p999_ms=latencies.percentile_ms(99.9),
        brokers_cpu_s=brokers_cpu_s,
        producers_cpu_s=sum(each.cpu_s for each in results),
        alone_per_s=min((each.alone_per_s for each in results), default=0.0),
        check_s=check_s,
        read=checked.read,
        lost=checked.lost,
        doubled=checked.doubled,
        reordered=checked.reordered,
        strange=checked.strange,
        disturbed=load.is_disturbed,
        broken=tuple(broken_promises(load, checked, acknowledged, refused, p99_ms)),
        errors=tuple(dict.fromkeys(error for each in results for error in each.errors)),
    )


def broken_promises(
    load: ProfileLoad, checked: Checked, acknowledged: int, refused: int, p99_ms: float | None
) -> list[str]:
    """The promises of the profile that this run has broken, in words.

    Any profile has to bring something through, and back nothing that was never sent. Payments: nothing lost, doubled,
    reordered or refused. A p99 below the promised one, where one is promised or asked for, unless a broker was killed.
    """
    broken = []
    if not acknowledged:
        broken.append("no record was acknowledged")
    if checked.strange:
        broken.append(f"{checked.strange:,} records were read that were never sent")
    if not load.workload.loses:
        found = {
            "acknowledged records are lost": checked.lost,
            "records are there twice": checked.doubled,
            "records are out of order": checked.reordered,
            "records were not acknowledged": refused,
        }
        broken += [f"{count:,} {what}" for what, count in found.items() if count]
    most_ms = load.workload.most_p99_ms if load.most_p99_ms is None else load.most_p99_ms
    if most_ms is not None and not load.is_disturbed and p99_ms is not None and p99_ms >= most_ms:
        broken.append(f"p99 is {p99_ms:,.0f} ms, and was to be below {most_ms:,.0f} ms")
    return broken
