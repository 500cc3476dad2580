"""`ottla reassign plan`: proposes moves of replicas, and shows what they would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import (
    ClusterOptions,
)
from ottla.cli.reassign import COMMAND

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster


def plan(
    shared: ClusterOptions,
    even: Annotated[
        bool, typer.Option("--even", help="Even bytes, replicas and leaders out over all brokers.")
    ] = False,
    add: Annotated[
        str, typer.Option(metavar="ID,…", help="New brokers, which take their share; nothing moves between others.")
    ] = "",
    empty: Annotated[
        str, typer.Option(metavar="ID,…", help="Brokers that shall have no replicas, alive or dead.")
    ] = "",
    factor: Annotated[
        int | None, typer.Option("--replication-factor", help="As many replicas for each partition.", min=1)
    ] = None,
    racks: Annotated[
        bool, typer.Option("--racks", help="Spread the replicas of each partition over as many racks as there are.")
    ] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="PATTERN", help="Move only topics like it (`logs-*`); may be repeated."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="How far from its even share a broker may be, in percent.", min=0, max=100)
    ] = 10,
    by_capacity: Annotated[
        bool, typer.Option("--by-capacity", help="Shares in proportion to the brokers' disks instead of equal ones.")
    ] = False,
    at_once: Annotated[int, typer.Option(help="Partitions that are copied at once: those of a batch.", min=1)] = 50,
    throttle: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES", help="Bytes per second and broker of the copying, to say how long it takes.", min=1
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the moves for `execute` here: FILE, or FILE-1, FILE-2, … before its ending."
        ),
    ] = None,
) -> None:
    """Propose moves of replicas to a goal, of several goals at once, and show what they would do. Changes nothing.

    Always: each partition keeps its number of replicas (but for --replication-factor), each on another live broker,
    over no fewer racks than before; no disk is filled beyond 90%. With --even and --add bytes, replicas and leaders of
    each broker come within the tolerance with few bytes copied; leaders by the order of replicas, which copies nothing.

    The files are those of kafka-reassign-partitions, one for each batch; one more, which ends in `-back`, has the
    replicas as they are now. Works with brokers of Apache Kafka, too.

    Ends with 0, with 1 where something cannot be done as asked, with 2 where the cluster could not be asked.
    """
    from ottla.cli.reassign.plan import PlanOptions, broker_ids, propose
    from ottla.ops.planning.model import PlanGoal

    async def work(cluster: Cluster) -> int:
        goal = PlanGoal(
            even=even,
            add=broker_ids("--add", add),
            empty=broker_ids("--empty", empty),
            replication_factor=factor,
            fix_racks=racks,
            tolerance=tolerance / 100,
            by_capacity=by_capacity,
        )
        return await propose(cluster, PlanOptions(goal, tuple(topic or ()), at_once, throttle, output, shared.as_json))

    COMMAND.run_with_cluster(shared, work)
