"""The commands of `ottla cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.cluster import COMMAND
from ottla.cli.cluster.plan import DEFAULT_BROKERS, DEFAULT_DATA, MOST_BROKERS, ClusterPlanOptions
from ottla.cli.named_clusters import NamedCluster, read_clusters
from ottla.cli.options import ClusterOptions, Json, Yes, cluster_command, make_app
from ottla.cli.terminal import Cell, Column, Style, Terminal, numbers, write_json

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

app = make_app(
    "cluster",
    "Start a cluster on this machine; show the state of any, or take a broker out of it.",
    no_args_is_help=False,
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    brokers: Annotated[int, typer.Option(help="How many brokers.", min=1, max=MOST_BROKERS)] = DEFAULT_BROKERS,
    port: Annotated[
        int, typer.Option(help="Port of the first broker, the others follow; 0 takes free ones.", min=0, max=65535)
    ] = 9092,
    host: Annotated[str, typer.Option(help="Host name or address to listen on.")] = "127.0.0.1",
    data: Annotated[str, typer.Option(help="Directory of all data and logs, created if missing.")] = DEFAULT_DATA,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of all brokers; may be repeated."),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…/CHROOT", help="This ZooKeeper ensemble instead of a server started here."),
    ] = None,
    zookeeper_port: Annotated[
        int, typer.Option(help="Port of the ZooKeeper server; 0 takes any free one.", min=0, max=65535)
    ] = 0,
) -> None:
    """Start a cluster on this machine, a process for each broker, until SIGTERM or Ctrl-C.

    A broker that ends is reported, and not started again. Ends with 0, with 1 where a process failed.
    """
    if context.invoked_subcommand is not None:
        return
    from ottla.cli.cluster.start import run

    options = ClusterPlanOptions(brokers, host, port, data, tuple(config or ()), zookeeper, zookeeper_port)
    COMMAND.run(lambda: run(options))


_NAMES: tuple[Column[NamedCluster], ...] = (
    Column("NAME", lambda each: Cell(each.name, Style.NAME)),
    Column("BOOTSTRAP SERVERS", lambda each: each.servers, may_shrink=True),
    numbers("SETTINGS", lambda each: each.settings or None),
)


@app.command()
def names(as_json: Json = False) -> None:
    """List the clusters that --cluster knows: those of ~/.config/ottla/clusters.toml, or of OTTLA_CLUSTERS_FILE.

    Servers are shown as they are written, other settings are not shown.
    """

    def work() -> int:
        found = read_clusters().named
        if as_json:
            write_json(*(each._asdict() for each in found))
        else:
            Terminal.standard_output().table(_NAMES, found, indent="")
        return 0

    COMMAND.run(work)


@cluster_command(app)
def status(shared: ClusterOptions) -> None:
    """Show the state of a cluster: brokers, racks, controller, topics, replicas that are behind, sizes.

    Ends with 0 where all is well, with 1 where a partition is not fully replicated, a broker did not answer, a log
    directory has failed or there is no controller, with 2 where the cluster could not be asked.
    """
    from ottla.cli.cluster.status_views import show_status, status_rows
    from ottla.ops.cluster_status import read_cluster_status

    async def work(cluster: Cluster) -> int:
        found = await read_cluster_status(cluster)
        if shared.as_json:
            write_json(*status_rows(found))
        else:
            show_status(Terminal.standard_output(), found)
        for broker, problem in found.silent.items():
            COMMAND.report(f"broker {broker} did not say its offsets and sizes: {problem}")
        return 0 if found.is_well else 1

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def health(
    shared: ClusterOptions,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Continue until Ctrl-C: report what begins and what is over.")
    ] = False,
    interval_s: Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.05)] = 5,
    count: Annotated[int | None, typer.Option("--count", help="Number of looks with --watch.", min=1)] = None,
) -> None:
    """Say what is wrong with a cluster, of ottla or Apache Kafka, and how each thing is cured.

    Partitions without a leader, below or at min.insync.replicas, under-replicated; replicas that lag; moves and
    deletions that are stuck; brokers that are gone or silent, their disks, racks and settings; lost records; leaders
    and sizes that are uneven. Where replicas lag or move, a second look says whether they make progress. Each finding
    has a section in docs/operations.md.

    Ends with 0 where the cluster is healthy (there may be notices), with 1 for warnings, with 2 where something is
    critical or the cluster could not be asked.
    """
    from ottla.cli.cluster.health import HealthOptions, show_health

    options = HealthOptions(watch, interval_s, count, shared.as_json)
    COMMAND.run_with_cluster(
        shared, lambda cluster: show_health(cluster, options), until_closed=watch and count is None
    )


@cluster_command(app)
def leave(
    shared: ClusterOptions,
    broker: Annotated[int, typer.Option("--id", help="The broker that leaves.", min=0)],
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the moves of its replicas, for `ottla reassign execute`: FILE, or FILE-1, FILE-2, … "
            "before its ending.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Take a broker out of a cluster for good, of ottla or Apache Kafka: its leaderships go to others.

    Its replicas have to live elsewhere first: else it is shown which ones do not, and nothing is changed. Where they
    go is planned as by `ottla reassign plan --empty`. Where no other broker is one of ottla, the topic
    __ottla_rebalances is deleted. The process is stopped by hand at the end.

    Ends with 0 where it may be stopped or has left, with 1 where something keeps it, with 2 where it could not be done.
    """
    from ottla.cli.cluster.leave import LeaveOptions
    from ottla.cli.cluster.leave import leave as leave_cluster

    options = LeaveOptions(broker, plan, yes, shared.as_json)
    COMMAND.run_with_cluster(shared, lambda cluster: leave_cluster(cluster, options))


@app.command()
def example(
    name: Annotated[str | None, typer.Argument(help="Which example; without, they are listed.")] = None,
    phase: Annotated[
        int | None, typer.Option(help="failover: only this phase of the five [all].", min=1, max=5)
    ] = None,
    as_json: Json = False,
) -> None:
    """Play an example on three brokers in this process, line by line. They keep all in memory.

    failover: a group's coordinator is killed in each of the five phases of a rebalance. Ends with 0 where no partition
    was owned twice and no commit is lost.
    """

    def work() -> int:
        from ottla.cli.cluster.example import show_example

        return show_example(name, phase, as_json=as_json)

    COMMAND.run(work)
