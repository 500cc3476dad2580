"""The commands of `ottla broker`, which work with any Kafka cluster over the wire."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.broker import COMMAND
from ottla.cli.command import NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

app = make_app("broker", "Show the brokers of a cluster, and forget those that are gone.")


@cluster_command(app, "list")
def list_brokers(shared: ClusterOptions) -> None:
    """List brokers: what they lead, hold, and have room for; also those that have replicas and are not there."""
    from ottla.cli.cluster.status_views import broker_row, show_brokers
    from ottla.ops.cluster_status import read_cluster_status

    async def work(cluster: Cluster) -> int:
        status = await read_cluster_status(cluster, offsets=False)
        if shared.as_json:
            write_json(*(broker_row(status, each) for each in status.registered))
        else:
            show_brokers(Terminal.standard_output(), status)
        return 0

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def describe(
    shared: ClusterOptions,
    brokers: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", min=0, help="Ids of brokers [all].")] = None,
) -> None:
    """Show brokers: their log directories, and the settings that they were given while they run.

    Ends with 0, with 1 where a broker is not there, with 2 where the cluster could not be asked.
    """
    from ottla.cli.broker.views import describe_brokers

    ids = list(dict.fromkeys(brokers)) if brokers else None
    COMMAND.run_with_cluster(shared, lambda cluster: describe_brokers(cluster, ids, as_json=shared.as_json))


@cluster_command(app)
def producers(
    shared: ClusterOptions,
    partitions: Annotated[
        list[str], typer.Argument(metavar="TOPIC[:PARTITION]...", help="Topics, or single partitions of them.")
    ],
) -> None:
    """Show the idempotent and transactional producers that the leaders of partitions know.

    Ends with 0, with 1 where a topic or partition is not there, with 2 where the cluster could not be asked.
    """
    from ottla.cli.broker.views import describe_producers

    COMMAND.run_with_cluster(shared, lambda cluster: describe_producers(cluster, partitions, as_json=shared.as_json))


@cluster_command(app)
def unregister(
    shared: ClusterOptions,
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="The id of the broker.")],
    yes: Yes = False,
) -> None:
    """Forget a broker that will not come back: its settings, and where topics' throttles name it.

    It is refused while the broker is alive or has replicas: stop it, and move them with `ottla reassign` first.

    Ends with 0, with 1 where that is refused or nothing is known of the broker.
    """
    from ottla.client.admin.brokers import BrokerAdmin
    from ottla.client.errors import BrokerError, UnsupportedVersionError

    async def work(cluster: Cluster) -> int:
        if not confirmed(f"Forget broker {broker} and its settings?", yes=yes, as_json=shared.as_json):
            return COMMAND.report(NOT_CONFIRMED)
        try:
            await BrokerAdmin(cluster).unregister_broker(broker)
        except UnsupportedVersionError as error:
            raise CommandError(
                f"{error}. Apache Kafka with ZooKeeper keeps of a dead broker nothing but its settings: take those "
                f"away with `ottla config unset` while it runs, or delete /config/brokers/{broker} in ZooKeeper"
            ) from None
        except BrokerError as error:
            code = COMMAND.report(str(error))
        else:
            code = 0
        if shared.as_json:
            write_json({"broker": broker, "unregistered": code == 0})
        elif not code:
            sys.stdout.write(f"forgotten: broker {broker}\n")
        return code

    COMMAND.run_with_cluster(shared, work)
