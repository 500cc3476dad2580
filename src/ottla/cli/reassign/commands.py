"""The commands of `ottla reassign`, with the files and the meaning of Kafka's kafka-reassign-partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.reassign import COMMAND
from ottla.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

app = make_app("reassign", "Move replicas to other brokers.")

MovesFile = Annotated[
    str,
    typer.Argument(metavar="FILE", help="JSON of kafka-reassign-partitions (--reassignment-json-file); - is stdin."),
]
PreserveThrottles = Annotated[bool, typer.Option("--preserve-throttles", help="Leave throttles as they are.")]


@cluster_command(app)
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
        int | None, typer.Option("--replication-factor", help="Replicas of each partition.", min=1)
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


@cluster_command(app, "list")
def list_moves(shared: ClusterOptions) -> None:
    """List partitions whose replicas move now: those that are added, and those that are removed at the end."""
    from ottla.cli.reassign.views import show_moves, under_way_row
    from ottla.client.admin.reassignments import ReassignmentAdmin

    async def work(cluster: Cluster) -> int:
        moves = await ReassignmentAdmin(cluster).list_partition_reassignments()
        if shared.as_json:
            write_json(*(under_way_row(*each) for each in sorted(moves.items())))
        else:
            show_moves(Terminal.standard_output(), moves)
        return 0

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def generate(
    shared: ClusterOptions,
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Names of topics.")] = None,
    topics_file: Annotated[
        str | None, typer.Option("--topics-to-move-json-file", metavar="FILE", help='JSON {"topics": [{"topic": …}]}.')
    ] = None,
    brokers: Annotated[
        str, typer.Option("--broker-list", "--brokers", metavar="1,2,…", help="The brokers that get the replicas.")
    ] = "",
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Do not look at racks.")] = False,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the proposal to this file, for `execute`.")
    ] = None,
) -> None:
    """Propose new places for all replicas of topics on some brokers.

    They are placed as those of new topics are; nothing is changed.
    """
    from ottla.cli.reassign.changes import ProposalOptions, generate_moves

    options = ProposalOptions(tuple(topics or ()), topics_file, brokers, disable_rack_aware, output)
    COMMAND.run_with_cluster(shared, lambda cluster: generate_moves(cluster, options, as_json=shared.as_json))


@cluster_command(app, "execute")
def execute_command(
    shared: ClusterOptions,
    file: MovesFile,
    throttle: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES", help="Most bytes per second that a broker copies for moves.")
    ] = None,
    log_dir_throttle: Annotated[
        int | None,
        typer.Option(
            "--replica-alter-log-dirs-throttle",
            min=1,
            metavar="BYTES",
            help="Most bytes per second that a broker copies between its log directories.",
        ),
    ] = None,
    additional: Annotated[
        bool,
        typer.Option("--additional", help="Also while others move; or to change the throttle of a move under way."),
    ] = False,
    save: Annotated[
        str | None, typer.Option("--save-current", metavar="FILE", help="Write the way back to this file.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Begin to move partitions to the brokers that a file names.

    The moves, and what they copy, are shown first. They continue when this has ended: `verify` says how they stand, and
    takes a throttle away.

    Ends with 0, with 1 where a partition was refused, with 2 where it could not be done as asked.
    """
    from ottla.cli.reassign.changes import Execution, execute_moves

    options = Execution(file, throttle, log_dir_throttle, additional, save)
    COMMAND.run_with_cluster(shared, lambda cluster: execute_moves(cluster, options, yes=yes, as_json=shared.as_json))


@cluster_command(app)
def verify(
    shared: ClusterOptions,
    file: MovesFile,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all are done, or nothing moves any more.")] = False,
    preserve_throttles: PreserveThrottles = False,
) -> None:
    """Show how the moves of a file stand; where no partition moves any more, take the throttles away.

    Ends with 0 where all replicas are where they should be, else with 1, with 2 where it could not be asked or read. A
    partition that is not there is "gone": its move is never done; take it out of the file.
    """
    from ottla.cli.reassign.changes import verify_moves

    COMMAND.run_with_cluster(
        shared,
        lambda cluster: verify_moves(
            cluster, file, wait=wait, preserve_throttles=preserve_throttles, as_json=shared.as_json
        ),
    )


@cluster_command(app)
def cancel(
    shared: ClusterOptions, file: MovesFile, preserve_throttles: PreserveThrottles = False, yes: Yes = False
) -> None:
    """Cancel the moves of a file that are under way: replicas that they add are deleted, the former ones stay.

    The throttles are taken away. Ends with 0, with 1 where a move could not be cancelled.
    """
    from ottla.cli.reassign.changes import cancel_moves

    COMMAND.run_with_cluster(
        shared,
        lambda cluster: cancel_moves(
            cluster, file, preserve_throttles=preserve_throttles, yes=yes, as_json=shared.as_json
        ),
    )
