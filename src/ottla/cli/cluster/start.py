"""`ottla cluster`: several brokers on this machine, a process each, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.cli.cluster import COMMAND
from ottla.cli.cluster.plan import (
    ZOOKEEPER,
    ClusterPlanOptions,
    check_options,
    command_line,
    plan_brokers,
    plan_zookeeper,
)
from ottla.cli.cluster.processes import ClusterProcess, StartFailed, start_process, stop_processes, wait_until_ready
from ottla.cli.cluster.registered import RegisteredBrokers, refuses
from ottla.cli.cluster.screen import ClusterScreen, ShownBroker, ShownCluster, make_cluster_screen
from ottla.cli.command import EXIT_REFUSED, CommandError
from ottla.cli.serve import ServeOptions, Stopped, UsageProblem, on_stop_signal, read_config, until_stop

if TYPE_CHECKING:
    from ottla.ops.cluster_status import ClusterStatus
    from ottla.peer.cluster import Cluster

#: Seconds between two looks at the cluster.
STATUS_INTERVAL_S: Final = 1.0
#: Timeout of a look, in milliseconds.
STATUS_TIMEOUT_MS: Final = 2_000
NO_ENSEMBLE: Final = (
    "ZooKeeper is one process here, a single point of failure: while it is down brokers serve on, but elect no leaders"
)


def run(options: ClusterPlanOptions) -> int:
    """Start the cluster and run it until a signal stops it; returns the exit code. Raises CommandError."""
    COMMAND.require("a cluster of several processes", ["kazoo"], "zookeeper")
    check_options(options)
    _check_settings(options)
    try:
        os.makedirs(options.data, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"cannot make {options.data}: {error.strerror}; choose another directory (--data)"
        ) from error
    return asyncio.run(LocalCluster(options).run())


def _check_settings(options: ClusterPlanOptions) -> None:
    """Refuse settings that a broker would refuse, before anything is started. Raises CommandError."""
    serve_options = ServeOptions(options.host, 0, options.data, 0, options.settings, None, zookeeper="127.0.0.1:2181")
    try:
        read_config(serve_options)
    except UsageProblem as problem:
        raise CommandError("; ".join(str(problem).splitlines())) from problem


class LocalCluster:
    """The processes of one `ottla cluster`, and what is known of them."""

    def __init__(self, options: ClusterPlanOptions) -> None:
        self._options = options
        self._members: list[ClusterProcess] = []
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._reported: set[str] = set()
        self._cluster: Cluster | None = None
        #: Set once a ZooKeeper server has been started here.
        self._registered: RegisteredBrokers | None = None
        self._stays_for: list[int] = []

    @property
    def _brokers(self) -> list[ClusterProcess]:
        return [each for each in self._members if each.plan.broker is not None]

    async def run(self) -> int:
        """Start, watch, stop; returns the exit code."""
        on_stop_signal(self._stop_or_hurry)
        code = 0
        footer = [NO_ENSEMBLE] if self._options.zookeeper is None else []
        with make_cluster_screen([*footer, "Ctrl-C stops all"]) as screen:
            try:
                with suppress(Stopped):
                    await until_stop(self._start(screen), self._stop)
                    await self._watch(screen)
                code = EXIT_REFUSED if self._reported else 0
            except StartFailed as problem:
                code = COMMAND.report(str(problem))
            except OSError as error:
                code = COMMAND.report(f"a process cannot be started: {error}")
            finally:
                if not await self._stop_all(screen):
                    code = EXIT_REFUSED
                if self._registered is not None:
                    await self._registered.close()
        return code

    def _stop_or_hurry(self) -> None:
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def _start(self, screen: ClusterScreen) -> None:
        zookeeper = await self._start_zookeeper(screen)
        for plan in plan_brokers(self._options, zookeeper):
            self._members.append(await start_process(plan))
        for member in self._brokers:
            address = await wait_until_ready(member)
            screen.say(
                f"{member.plan.name} listening on {address}, process {member.process.pid}, data in "
                f"{self._options.data}/broker-{member.plan.broker}, log in {member.plan.log_path}"
            )
        screen.say(f"ready: bootstrap.servers={self.bootstrap_servers}; Ctrl-C stops all")

    async def _start_zookeeper(self, screen: ClusterScreen) -> str:
        """The address of ZooKeeper, which is started unless one is named."""
        plan = plan_zookeeper(self._options)
        if plan is None:
            assert self._options.zookeeper is not None
            return self._options.zookeeper
        member = await start_process(plan)
        self._members.append(member)
        address = await wait_until_ready(member)
        self._registered = RegisteredBrokers(address)
        screen.say(f"{plan.name} listening on {address}, process {member.process.pid}. {NO_ENSEMBLE}")
        return address

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(each.address for each in self._brokers if each.address is not None)

    # While it runs

    async def _watch(self, screen: ClusterScreen) -> None:
        """Show the state until a signal comes, or no broker is left."""
        try:
            while not self._stop.is_set():
                is_left = any(each.is_running for each in self._brokers) or await self._others(screen) != []
                self._report_ended(screen, is_left=is_left)
                if not is_left:
                    screen.say("no broker is left. To start the cluster again:")
                    screen.say(f"  {command_line(self._options)}")
                    return
                status = await self._status()
                screen.show(self._shown(status, await self._silent(status)))
                await self._pause()
        finally:
            if self._cluster is not None:
                await self._cluster.close()

    async def _pause(self) -> None:
        """Until the next look, the end of a process, or a signal."""
        ends = {asyncio.ensure_future(each.process.wait()) for each in self._members if each.is_running}
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({*ends, stopping}, timeout=STATUS_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
        for each in (*ends, stopping):
            each.cancel()

    async def _others(self, screen: ClusterScreen) -> list[int] | None:
        """The brokers started by hand that use the ZooKeeper server of this cluster; None where that is not known."""
        server = next((each for each in self._members if each.plan.name == ZOOKEEPER), None)
        if server is None or not server.is_running or self._registered is None:
            return []
        live = await self._registered.live()
        if live and live != self._stays_for:
            self._stays_for = live
            names = ", ".join(map(str, live))
            screen.say(f"{ZOOKEEPER} stays for brokers started by hand: {names}. It stops after them")
        return live

    def _report_ended(self, screen: ClusterScreen, *, is_left: bool) -> None:
        """Name the processes that have ended. One can be started by hand while a broker is left."""
        for member in self._members:
            if not member.is_running and member.plan.name not in self._reported:
                self._reported.add(member.plan.name)
                screen.say(f"{member.plan.name} {member.ending()}")
                is_cut_off = not is_left and self._registered is not None
                how = "" if is_cut_off else " To start it by hand:"
                screen.say(f"  it is not started again; its log is {member.plan.log_path}.{how}")
                if not is_cut_off:
                    screen.say(f"  {member.plan.by_hand(member.address)}")

    async def _status(self) -> ClusterStatus | None:
        """Ask a broker for the cluster's status; None where none answers."""
        from ottla.client.errors import ClientError
        from ottla.ops.cluster_status import read_cluster_status
        from ottla.peer.cluster import Cluster
        from ottla.peer.settings import ConnectionSettings

        if self._cluster is None:
            settings = ConnectionSettings(
                self.bootstrap_servers,
                client_id="ottla-cluster",
                request_timeout_ms=STATUS_TIMEOUT_MS,
                default_api_timeout_ms=STATUS_TIMEOUT_MS,
                socket_connection_setup_timeout_ms=STATUS_TIMEOUT_MS,
            )
            self._cluster = Cluster(settings)
        try:
            return await until_stop(read_cluster_status(self._cluster, configs=(), sizes=False), self._stop)
        except (ClientError, Stopped):
            return None

    async def _silent(self, status: ClusterStatus | None) -> list[int]:
        """Brokers that have ended and are still registered, without those that were started by hand since."""
        ended = [each.plan.broker for each in self._brokers if not each.is_running]
        nodes = [each.node for each in status.brokers if each.node.node_id in ended] if status is not None else []
        return [each.node_id for each in nodes if await refuses(each.host, each.port)]

    def _shown(self, status: ClusterStatus | None, silent: Sequence[int]) -> ShownCluster:
        from ottla.cli.cluster.status_views import cluster_health

        brokers = tuple(_shown_broker(each, status) for each in self._brokers)
        if status is None:
            return ShownCluster(brokers)
        health = cluster_health(status, silent).text
        return ShownCluster(brokers, len(status.topics), len(status.partitions), health)

    # Its end

    async def _stop_all(self, screen: ClusterScreen) -> bool:
        """Stop the brokers, then ZooKeeper, which they need to stop; False where one had to be killed.

        Brokers that were started by hand are waited for, unless a second signal comes.
        """
        running = [each for each in self._members if each.is_running]
        if running:
            screen.say(f"stopping {', '.join(each.plan.name for each in running)}")
        killed = await stop_processes(self._brokers, self._hurry)
        self._stays_for = []
        while not self._hurry.is_set() and await self._others(screen):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), STATUS_INTERVAL_S)
        killed += await stop_processes(self._members, self._hurry)
        for name in killed:
            screen.say(f"{name} did not stop and was killed")
        screen.say("stopped")
        return not killed


def _shown_broker(member: ClusterProcess, status: ClusterStatus | None) -> ShownBroker:
    broker = member.plan.broker
    assert broker is not None
    shown = ShownBroker(broker, member.address or "-", member.process.pid, member.ending())
    if status is None:
        return shown
    row = status.broker_row(broker)
    return replace(shown, is_controller=row.is_controller, leads=row.leads, replicas=row.replicas, in_sync=row.in_sync)
