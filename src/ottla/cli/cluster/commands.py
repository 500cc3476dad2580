"""The commands of `ottla cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.cluster import COMMAND
from ottla.cli.command import ClusterOptions
from ottla.cli.options import DEFAULT_SERVERS, DEFAULT_TIMEOUT_S, Json, Servers, Timeout, make_app
from ottla.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

app = make_app("cluster", "Show the state of a cluster.")


@app.callback()
def root() -> None:
    """Show the state of a cluster."""


@app.command()
def status(servers: Servers = DEFAULT_SERVERS, timeout_s: Timeout = DEFAULT_TIMEOUT_S, as_json: Json = False) -> None:
    """Show the state of a cluster: brokers, racks, controller, topics, replicas that are behind, sizes.

    Ends with 0 where all is well, with 1 where a partition is not fully replicated, a broker did not answer, a log
    directory has failed or there is no controller, with 2 where the cluster could not be asked.
    """
    from ottla.cli.cluster.status_views import show_status, status_rows
    from ottla.client.cluster_status import read_cluster_status

    async def work(cluster: Cluster) -> int:
        found = await read_cluster_status(cluster)
        if as_json:
            for row in status_rows(found):
                write_json(row)
        else:
            show_status(Terminal.standard_output(), found)
        for broker in found.brokers:
            if broker.problem is not None:
                COMMAND.report(f"broker {broker.node.node_id} did not say its offsets and sizes: {broker.problem}")
        return 0 if found.is_well else 1

    COMMAND.run_with_cluster(ClusterOptions(servers, timeout_s), work)
