"""The commands of `ottla reassign`, with the files and the meaning of Kafka's kafka-reassign-partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command import ClusterOptions
from ottla.cli.options import DEFAULT_SERVERS, DEFAULT_TIMEOUT_S, Json, Servers, Timeout, make_app
from ottla.cli.reassign import COMMAND
from ottla.cli.reassign.plan_command import plan
from ottla.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

app = make_app("reassign", "Move replicas to other brokers.")
app.command("plan")(plan)


@app.command("list")
def list_moves(
    servers: Servers = DEFAULT_SERVERS, timeout_s: Timeout = DEFAULT_TIMEOUT_S, as_json: Json = False
) -> None:
    """List partitions whose replicas move now: those that are added, and those that are removed at the end."""
    from ottla.cli.reassign.views import move_row, show_moves
    from ottla.client.admin.reassignments import ReassignmentAdmin

    async def work(cluster: Cluster) -> int:
        moves = await ReassignmentAdmin(cluster).list_partition_reassignments()
        if as_json:
            for partition, move in sorted(moves.items()):
                write_json(move_row(partition, move))
        else:
            show_moves(Terminal.standard_output(), moves)
        return 0

    COMMAND.run_with_cluster(ClusterOptions(servers, timeout_s), work)
