"""The commands of `ottla replica`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.replica import COMMAND

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

app = make_app("replica", "Log directories and the replicas in them: show, move and compare.")

Topics = Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics; all without.")]
BrokerIds = Annotated[list[int] | None, typer.Option("--broker", help="This broker; may be repeated.", min=0)]


@cluster_command(app, "list")
def list_replicas(shared: ClusterOptions, topics: Topics = None, brokers: BrokerIds = None) -> None:
    """Show the log directories of brokers, what is moved between them, and records that replicas lost.

    With topics, each of their replicas, too. With --json a line for each log directory, and for each replica.

    Ends with 0, with 1 where a log directory has failed, or a broker or topic is not there or did not answer.
    """
    from ottla.cli.replica.views import show_log_dirs
    from ottla.client.admin.outcomes import topic_error
    from ottla.ops.cluster_status import read_cluster_status

    async def work(cluster: Cluster) -> int:
        status = await read_cluster_status(cluster, topics or None, configs=[], offsets=False)
        for name, error in status.missing.items():
            COMMAND.report(str(await topic_error(cluster, error.code, name, "is not shown")))
        absent = sorted(set(brokers or ()).difference(status.registered))
        if absent:
            COMMAND.report(
                f"there is no broker {', '.join(map(str, absent))} at the moment; "
                f"the brokers are {', '.join(map(str, status.registered))}"
            )
        is_well = show_log_dirs(status, set(brokers or ()), with_replicas=bool(topics), as_json=shared.as_json)
        for broker, problem in status.silent.items():
            COMMAND.report(f"broker {broker} did not answer: {problem}")
        return 0 if is_well and not status.missing and not absent else 1

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def move(
    shared: ClusterOptions,
    partitions: Annotated[
        list[str], typer.Argument(metavar="TOPIC-PARTITION...", help="Partitions, as in orders-0; or whole topics.")
    ],
    broker: Annotated[int, typer.Option(help="The broker whose replicas are moved.", min=0)],
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="The log directory, as `ottla replica list` has it.")],
    wait: Annotated[bool, typer.Option(help="Wait until they are there.")] = False,
    yes: Yes = False,
) -> None:
    """Move replicas of a broker to another of its log directories; to the present one ends a move.

    What will be copied is shown first, beside the space that is free there; where that is too little nothing is begun.
    The partitions are served as before meanwhile. The broker's setting replica.alter.log.dirs.io.max.bytes.per.second
    limits how fast it copies.

    Ends with 0 where the moves have begun (with --wait: are done), with 1 where one was refused or nothing was changed.
    """
    from ottla.cli.replica.moves import MoveWish, move_replicas

    wish = MoveWish(tuple(partitions), broker, to, wait, yes, shared.as_json)
    COMMAND.run_with_cluster(shared, lambda cluster: move_replicas(cluster, wish))


@cluster_command(app)
def verify(shared: ClusterOptions, topics: Topics = None) -> None:
    """Compare the replicas of partitions, on brokers of ottla or Apache Kafka: offsets and checksums of all batches.

    Up to the high watermark at the beginning, or as far as a replica that is behind has come. Replicas of compacted
    topics may hold different batches: of those only the ends are compared.

    Ends with 0 where all replicas are the same, with 1 where two differ, or one is behind or does not answer.
    """
    from ottla.cli.replica.views import show_checks
    from ottla.client.admin.outcomes import topic_error
    from ottla.ops.cluster_status import read_cluster_status
    from ottla.ops.replica_checks import CLEANUP_POLICY, ReplicaChecker

    async def work(cluster: Cluster) -> int:
        status = await read_cluster_status(cluster, topics or None, configs=[CLEANUP_POLICY])
        for name, error in status.missing.items():
            COMMAND.report(str(await topic_error(cluster, error.code, name, "is not compared")))
        if status.missing and not status.topics:
            return 1
        checks = await ReplicaChecker(cluster, status).check(status.partitions)
        show_checks(checks, as_json=shared.as_json)
        return 0 if all(each.is_same for each in checks) and not status.missing else 1

    COMMAND.run_with_cluster(shared, work)
