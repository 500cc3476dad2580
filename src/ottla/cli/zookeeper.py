"""`ottla zookeeper`: a ZooKeeper server on ottla's own znode tree."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.cli.command import EXIT_REFUSED, Command
from ottla.cli.serve import on_stop_signal, prepare_process, process_start_s, run_in_loop

if TYPE_CHECKING:
    from ottla.env.clock import SystemClock
    from ottla.env.disk import DiskError, Lock, RealDisk
    from ottla.env.executor import DiskExecutor
    from ottla.zk.server.server import ServerSettings
    from ottla.zk.server.zoo_cfg import SecureListener
    from ottla.zk.store import TreeStore

COMMAND = Command("ottla zookeeper")

#: The file that brokers lock in their log directories, so that none shares this one.
LOCK_NAME = ".lock"
#: One flushes the log, one writes snapshots.
DISK_THREADS = 2
MAX_CONFIG_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """The command's options."""

    host: str = "127.0.0.1"
    port: int | None = 2181
    data: str = "ottla-zookeeper"
    tick_time_ms: int = 2000
    unclean_start: bool = False
    config: str | None = None


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
    from ottla.zk.server.server import ZooKeeperServer

    started_s = process_start_s()
    stop = asyncio.Event()
    on_stop_signal(stop.set)
    failures: list[DiskError] = []

    def failed(error: DiskError) -> None:
        failures.append(error)
        stop.set()

    disk, clock, executor = RealDisk(), SystemClock(), DiskExecutor(DISK_THREADS)
    try:
        options, settings, users, secure = _configured(options)
        lock = _lock(disk, options.data)
        store = _open(disk, options, clock, executor)
        server = ZooKeeperServer(
            store, clock, Randomness(), options.host, options.port, settings, failed, users, secure
        )
        await server.start()
    except (CannotStart, NetworkError, DiskError) as problem:
        return COMMAND.report(str(problem))
    ports = [] if options.port is None else [f"on {options.host}:{server.port}"]
    ports += [] if secure is None else [f"with TLS on {secure.host or '*'}:{server.secure_port}"]
    print(
        f"ottla {__version__} ready in {time.monotonic() - started_s:.2f} s: ZooKeeper server listening "
        f"{', '.join(ports)}, data in {options.data} ({len(store.tree.nodes)} nodes, "
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


def _configured(
    options: ZooKeeperOptions,
) -> tuple[ZooKeeperOptions, ServerSettings, dict[str, str], SecureListener | None]:
    """The options, completed by the file that they name, and what that says besides. Raises `CannotStart`."""
    from ottla.zk.server.server import ServerSettings

    if options.config is None:
        return options, ServerSettings(options.tick_time_ms), {}, None
    from ottla.config.properties import PropertiesError, parse_properties
    from ottla.env.outgoing import reason_of
    from ottla.env.secret_files import read_whole
    from ottla.zk.server.zoo_cfg import ZooConfigError, zoo_config

    try:
        found = zoo_config(parse_properties(read_whole(options.config, MAX_CONFIG_BYTES).decode()))
    except OSError as error:
        raise CannotStart(f"--config {options.config} cannot be read: {reason_of(error)}") from None
    except (UnicodeDecodeError, PropertiesError, ZooConfigError) as error:
        raise CannotStart(f"--config {options.config}: {error}") from None
    for name in found.ignored:
        COMMAND.report(f"--config {options.config}: {name} has no effect here")
    values = {"host": found.host, "port": found.port, "data": found.data, "tick_time_ms": found.tick_time_ms}
    defaults = ZooKeeperOptions()
    changes: dict[str, Any] = {
        name: value
        for name, value in values.items()
        if value is not None and getattr(options, name) == getattr(defaults, name)
    }
    if found.secure is not None and found.port is None and options.port == defaults.port:
        changes["port"] = None  # as in ZooKeeper, nothing listens without TLS then
    options = replace(options, **changes)
    settings = ServerSettings(options.tick_time_ms, max_client_connections=found.max_client_connections or 0)
    return options, settings, found.users, found.secure


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
