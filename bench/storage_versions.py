"""Loads for the logs of two versions of ottla: recovery, a start with many partitions, and compaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from contestants import DELETE_DELAY, LAUNCH_TIMEOUT_S, Started, launch
from frames import Caller, produce_frame, record_batch
from loads import KIB, MIB, TINY_RECORD_BYTES
from storage_loads import compact, create, fill, keyed_batches, send, spoil_stop, wait_for_leaders

from ottla.wire.apis import ApiKey
from support.ottla_server import OttlaServer

#: Compaction begins at once, on segments of this size; the active one is left alone.
COMPACTION = {
    "log.cleaner.dedupe.buffer.size": str(128 * MIB),
    "log.cleaner.backoff.ms": "100",
    "log.segment.bytes": str(16 * MIB),
    **DELETE_DELAY,
}
RECOVERY_PARTITIONS = 8
#: Every batch of a compacted topic is sent this many times.
TIMES_SENT = 4
DATA, MANY, KEYED = "data", "many", "keyed"

#: Group, title, unit, version, value.
Report = Callable[[str, str, str, str, float], None]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    recovery_bytes: int
    partitions: int
    compaction_batches: int


class StorageVersions:
    """Brokers of each version, each with data of its own."""

    def __init__(
        self, sizes: Sizes, folder: Path, environments: Mapping[str, Mapping[str, str]], report: Report
    ) -> None:
        self._sizes = sizes
        self._folder = folder
        self._environments = environments
        self._report = report
        self._brokers: dict[tuple[str, str], OttlaServer] = {}
        self._running: Started | None = None
        self._rounds = 0

    def prepare(self, name: str) -> None:
        """Fill the log directories of one version."""
        started = self._launch(name, DATA)
        create(started, DATA, RECOVERY_PARTITIONS)
        fill(started, DATA, RECOVERY_PARTITIONS, self._sizes.recovery_bytes, 64 * KIB)
        self.stop()
        started = self._launch(name, MANY)
        create(started, MANY, self._sizes.partitions)
        batch, _ = record_batch(TINY_RECORD_BYTES, 0)
        with Caller(started.port) as caller:
            caller.probe(ApiKey.PRODUCE, produce_frame(MANY, dict.fromkeys(range(self._sizes.partitions), batch)))
        self._stop_cleanly(name, MANY)

    def measurements(self) -> list[tuple[str, Callable[[str], None]]]:
        """What is measured, and how for the version of a name."""
        return [
            ("recovery", self._recovery),
            ("start with many partitions", self._start),
            ("compaction", self._compaction),
        ]

    def stop(self) -> None:
        """Kill what still runs."""
        if self._running is not None:
            self._running.stop()
            self._running = None

    def _launch(self, name: str, what: str) -> Started:
        broker = self._brokers.get((name, what))
        if broker is None:
            settings = COMPACTION if what == KEYED else DELETE_DELAY
            broker = OttlaServer(
                self._folder / f"{name}-{what}", overrides=settings, env=dict(self._environments[name])
            )
            self._brokers[name, what] = broker
        self._running = launch(name, broker)
        return self._running

    def _stop_cleanly(self, name: str, what: str) -> None:
        self._brokers[name, what].stop(LAUNCH_TIMEOUT_S)
        self._running = None

    def _recovery(self, name: str) -> None:
        spoil_stop(self._brokers[name, DATA].log_dir)
        started = self._launch(name, DATA)
        wait_for_leaders(started, DATA, RECOVERY_PARTITIONS)
        what = f"recovery of {self._sizes.recovery_bytes // MIB:,} MiB after kill -9"
        self._report("Storage", what, "CPU s until the first answer", name, started.cpu_s)
        self.stop()

    def _start(self, name: str) -> None:
        started = self._launch(name, MANY)
        what = f"start with {self._sizes.partitions:,} partitions after a clean stop"
        self._report("Storage", what, "CPU s until the first answer", name, started.cpu_s)
        self._stop_cleanly(name, MANY)

    def _compaction(self, name: str) -> None:
        self._rounds += 1
        started, topic = self._launch(name, KEYED), f"{KEYED}-{self._rounds}"
        create(started, topic, 1)
        send(started, topic, {0: keyed_batches(self._sizes.compaction_batches // TIMES_SENT, TIMES_SENT)})
        dirty_bytes, _, cpu_s = compact(started, topic)
        self._report("Storage", "compaction", "broker CPU s per GB", name, cpu_s / (dirty_bytes / 1e9))
        self.stop()
