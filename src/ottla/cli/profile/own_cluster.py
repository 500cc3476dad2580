"""The brokers that `ottla profile` starts for itself, in a scratch directory, and kills on request."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ottla.cli.cluster.plan import ClusterPlanOptions, PlannedProcess, plan_brokers, plan_zookeeper
from ottla.cli.cluster.processes import ClusterProcess, StartFailed, send_signal, start_process, wait_until_ready
from ottla.profiles.workload import ProfileError

T = TypeVar("T")

SETTINGS: Final = ("zookeeper.session.timeout.ms=6000",)
"""A dead broker is found out after this time, as with Kafka's default before 2.5."""


LEAST_FREE_BYTES: Final = 2 * 1024**3
"""A run ends where its scratch directory's disk has less than this left: others need some."""
DISK_LOOK_S: Final = 0.5


class OwnCluster:
    """Brokers and a ZooKeeper server on this machine, as child processes."""

    def __init__(self, folder: str, brokers: int, say: Callable[[str], None]) -> None:
        self.folder = folder
        self._options = ClusterPlanOptions(brokers=brokers, port=0, data=folder, settings=SETTINGS)
        self._say = say
        self._zookeeper: ClusterProcess | None = None
        self._brokers: list[ClusterProcess] = []
        #: Processor time of processes that were killed.
        self._spent_s = 0.0

    async def start(self) -> str:
        """Start all of it; returns the brokers' addresses. Raises ProfileError, OSError."""
        zookeeper = plan_zookeeper(self._options)
        assert zookeeper is not None
        try:
            self._zookeeper = await start_process(zookeeper)
            address = await wait_until_ready(self._zookeeper)
            for plan in plan_brokers(self._options, address):
                self._brokers.append(await start_process(plan))
            addresses = [await wait_until_ready(each) for each in self._brokers]
        except StartFailed as problem:
            raise ProfileError(str(problem)) from problem
        return ",".join(addresses)

    async def kill_and_restart(self) -> None:
        """Kill a broker chosen by chance with SIGKILL, start it again on its port, and wait until it is ready."""
        index = random.randrange(len(self._brokers))
        killed = self._brokers[index]
        self._say(f"{killed.plan.name} (process {killed.process.pid}) is killed, and started again")
        self._spent_s += cpu_seconds(killed.process.pid) or 0.0
        send_signal(killed, signal.SIGKILL)
        await killed.process.wait()
        assert killed.address is not None
        try:
            self._brokers[index] = await start_process(_on_port(killed.plan, killed.address))
            await wait_until_ready(self._brokers[index])
        except StartFailed as problem:
            raise ProfileError(str(problem)) from problem
        self._say(f"{killed.plan.name} is back")

    def cpu_seconds(self) -> float | None:
        """Processor time of brokers and ZooKeeper so far; None where the system does not say."""
        members = [each for each in (self._zookeeper, *self._brokers) if each is not None and each.is_running]
        found = [cpu_seconds(each.process.pid) for each in members]
        known = [each for each in found if each is not None]
        return self._spent_s + sum(known) if len(known) == len(found) else None

    async def stop(self) -> None:
        """Kill what runs: its data are scratch."""
        members = [each for each in (*self._brokers, self._zookeeper) if each is not None]
        for each in members:
            send_signal(each, signal.SIGKILL)
        for each in members:
            await each.process.wait()


@asynccontextmanager
async def own_cluster(brokers: int, say: Callable[[str], None]) -> AsyncIterator[tuple[OwnCluster, str]]:
    """A cluster and its addresses, its data in a directory that is removed in the end. Raises ProfileError, OSError."""
    with tempfile.TemporaryDirectory(prefix="ottla-profile-", ignore_cleanup_errors=True) as folder:
        cluster = OwnCluster(folder, brokers, say)
        try:
            yield cluster, await cluster.start()
        finally:
            await cluster.stop()


async def while_disk_lasts(work: Coroutine[Any, Any, T], folder: str) -> T:
    """Do the work. Raises what it raises, and ProfileError once the disk of `folder` is nearly full."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            free = shutil.disk_usage(folder).free
            if free < LEAST_FREE_BYTES:
                raise ProfileError(
                    f"the disk of {folder} has {free / 1e9:.1f} GB left; give fewer --records or --seconds, or name a "
                    "larger directory in TMPDIR"
                )
            await asyncio.wait((task,), timeout=DISK_LOOK_S)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    return task.result()


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process, from Linux's /proc; None where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    # After the name, which may contain anything: utime and stime are the fields 14 and 15.
    utime, stime = stat.rpartition(")")[2].split()[11:13]
    return (int(utime) + int(stime)) / os.sysconf("SC_CLK_TCK")


def _on_port(plan: PlannedProcess, address: str) -> PlannedProcess:
    """The same process on the port of this address, at which clients know it."""
    arguments = list(plan.arguments)
    arguments[arguments.index("--port") + 1] = address.rpartition(":")[2]
    return replace(plan, arguments=tuple(arguments))
