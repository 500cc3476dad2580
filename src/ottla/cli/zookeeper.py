"""`ottla zookeeper`: a ZooKeeper server on ottla's own znode tree."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.cli.command import EXIT_REFUSED, Command
from ottla.cli.serve import on_stop_signal, prepare_process, process_start_s, run_in_loop

if TYPE_CHECKING:
    from ottla.env.clock import SystemClock
    from ottla.env.disk import DiskError, Lock, RealDisk
    from ottla.env.executor import DiskExecutor
    from ottla.zk.store import TreeStore

COMMAND = Command("ottla zookeeper")

#: The file that brokers lock in their log directories, so that none shares this one.
LOCK_NAME = ".lock"
#: One flushes the log, one writes snapshots.
DISK_THREADS = 2


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """The command's options."""

    host: str = "127.0.0.1"
    port: int = 2181
    data: str = "ottla-zookeeper"
    tick_time_ms: int = 2000
    unclean_start: bool = False


class CannotStart(Exception):
    """Why the server does not start, in words for the user."""


def run(options: ZooKeeperOptions) -> int:
    """Run the server; returns the exit code."""
    prepare_process()
    return run_in_loop(_serve(options))


async def _serve(options: ZooKeeperOptions) -> int:
    from ottla.env.clock import SystemClock
    from ottla.env.collector import tune_collector
    from ottla.env.disk import DiskError, RealDisk
    from ottla.env.executor import DiskExecutor
    from ottla.env.network import NetworkError
    from ottla.env.randomness import Randomness
    from ottla.zk.server.server import ServerSettings, ZooKeeperServer

    started_s = process_start_s()
    stop = asyncio.Event()
    on_stop_signal(stop.set)
    failures: list[DiskError] = []

    def failed(error: DiskError) -> None:
        failures.append(error)
        stop.set()

    disk, clock, executor = RealDisk(), SystemClock(), DiskExecutor(DISK_THREADS)
    try:
        lock = _lock(disk, options.data)
        store = _open(disk, options, clock, executor)
        server = ZooKeeperServer(
            store, clock, Randomness(), options.host, options.port, ServerSettings(options.tick_time_ms), failed
        )
        await server.start()
    except (CannotStart, NetworkError, DiskError) as problem:
        return COMMAND.report(str(problem))
    print(
        f"ottla {__version__} ready in {time.monotonic() - started_s:.2f} s: ZooKeeper server listening on "
        f"{options.host}:{server.port}, data in {options.data} ({len(store.tree.nodes)} nodes, "
        f"{len(store.tree.sessions)} sessions)",
        flush=True,
    )
    tune_collector()
    await stop.wait()
    await server.stop()
    try:
        store.close()
    except DiskError as error:
        failures.append(error)
    executor.close()
    lock.release()
    for failure in failures:
        COMMAND.report(f"{failure}. What was acknowledged is on the disk; repair the disk and start again")
    print("stopped", flush=True)
    return EXIT_REFUSED if failures else 0


def _lock(disk: RealDisk, directory: str) -> Lock:
    disk.mkdirs(directory)
    lock = disk.lock(f"{directory}/{LOCK_NAME}")
    if lock is None:
        raise CannotStart(
            f"another process has {directory} (it holds {directory}/{LOCK_NAME}): stop it, or choose another one "
            "(--data)"
        )
    return lock


def _open(disk: RealDisk, options: ZooKeeperOptions, clock: SystemClock, executor: DiskExecutor) -> TreeStore:
    from ottla.zk.store import TreeDamaged, TreeStore

    try:
        store = TreeStore.open(
            disk,
            options.data,
            clock,
            executor,
            flush_on_ack=True,
            waits_for_disk=True,
            unclean_start=options.unclean_start,
        )
    except TreeDamaged as damaged:
        raise CannotStart(str(damaged)) from damaged
    for note in store.notes:
        COMMAND.report(note)
    return store
