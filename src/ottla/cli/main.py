"""The command `ottla`: what it offers; each command's own work is imported when it is called."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from ottla import __version__
from ottla.cli.acl.commands import app as acl
from ottla.cli.backfill import backfill
from ottla.cli.broker.commands import app as broker
from ottla.cli.cluster.commands import app as cluster
from ottla.cli.config.commands import app as config_app
from ottla.cli.consume import consume
from ottla.cli.copy import copy
from ottla.cli.demo import demo
from ottla.cli.doctor import doctor
from ottla.cli.group.commands import app as group
from ottla.cli.leader_election import leader_election
from ottla.cli.log.commands import app as log
from ottla.cli.options import cluster_command, make_app
from ottla.cli.pipeline.commands import app as pipeline
from ottla.cli.produce import produce
from ottla.cli.profile.commands import profile
from ottla.cli.quotas import app as quota
from ottla.cli.reassign.commands import app as reassign
from ottla.cli.rebalance.commands import app as rebalance
from ottla.cli.replica.commands import app as replica
from ottla.cli.search import search
from ottla.cli.tokens import app as token
from ottla.cli.top import top
from ottla.cli.topic.commands import app as topic
from ottla.cli.transactions import app as transaction
from ottla.cli.users import app as user
from ottla.cli.znodes import get, ls, tree

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Commands that people type from habit, Kafka's tools and kcat, and which of ottla's does the same.
INSTEAD: Final[Mapping[str, str]] = {
    "kafka-acls": "acl list|add|remove",
    "kafka-broker-api-versions": "broker describe",
    "kafka-configs": "config describe|set|unset",
    "kafka-console-consumer": "consume",
    "kafka-console-producer": "produce",
    "kafka-consumer-groups": "group list|describe|reset-offsets|delete",
    "kafka-delegation-tokens": "token create|list|renew|delete",
    "kafka-delete-records": "topic delete-records",
    "kafka-dump-log": "log dump",
    "kafka-get-offsets": "topic offsets",
    "kafka-leader-election": "leader-election",
    "kafka-log-dirs": "replica list",
    "kafka-mirror-maker": "pipeline run",
    "kafka-producer-perf-test": "profile",
    "kafka-reassign-partitions": "reassign plan|execute|verify|cancel",
    "kafka-replica-verification": "replica verify",
    "kafka-server-start": "serve",
    "kafka-topics": "topic list|describe|create|alter|delete",
    "kafka-transactions": "transaction list|describe|find-hanging|abort",
    "kafka-verifiable-consumer": "consume",
    "kafka-verifiable-producer": "produce",
    "kafkacat": "produce` or `ottla consume",
    "kcat": "produce` or `ottla consume",
    "rpk": "topic list|describe|create|alter|delete",
    "zookeeper-server-start": "zookeeper",
    "zookeeper-shell": "zookeeper ls|get|tree",
}
#: Names of other tools' groups of commands.
_PLURALS: Final = {
    "acls": "acl",
    "brokers": "broker",
    "configs": "config",
    "groups": "group",
    "logs": "log",
    "topics": "topic",
    "transactions": "transaction",
}


class Commands(TyperGroup):
    """Commands of `ottla`, which say what does the job of a tool that is typed from habit."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. A habit ends with a usage error that names ottla's command."""
        name = args[0].removesuffix(".sh").removesuffix(".bat") if args else ""
        if ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if name in INSTEAD and name not in self.commands:
            ctx.fail(f"{args[0]} is `ottla {INSTEAD[name]}` here.")
        if name in _PLURALS and name not in self.commands:
            ctx.fail(f"No such command '{args[0]}'; it is `ottla {_PLURALS[name]}`.")
        return super().resolve_command(ctx, args)


app = make_app("ottla", "A Kafka-compatible event-streaming platform in Python.", group=Commands, add_completion=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        from ottla.records import build_in_use

        typer.echo(f"ottla {__version__} ({build_in_use()})")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version, and whether it is compiled, and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """A Kafka-compatible event-streaming platform in Python."""


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Host name or address to listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one [9092].")] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIRECTORY,…", help="Log directories (log.dirs), created if missing [ottla-data]."),
    ] = None,
    broker_id: Annotated[int | None, typer.Option("--id", help="The broker's id (broker.id).")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting by its Kafka name; may be repeated."),
    ] = None,
    durable: Annotated[
        bool, typer.Option("--durable", help="Acknowledge records only once they are on the disk.")
    ] = False,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,…/CHROOT",
            help="Keep the coordination metadata in this ZooKeeper (zookeeper.connect), not beside the log.",
        ),
    ] = None,
    zookeeper_port: Annotated[
        int | None,
        typer.Option(help="Serve the broker's own znodes to other processes: ZooKeeper's protocol on this port."),
    ] = None,
    properties: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A server.properties file of Kafka's; -c and options take precedence over it."
        ),
    ] = None,
) -> None:
    """Run one broker until SIGTERM or Ctrl-C."""
    from ottla.cli.serve import ServeOptions, run

    settings = tuple(config or ())
    options = ServeOptions(host, port, data, broker_id, settings, properties, durable, zookeeper, zookeeper_port)
    sys.exit(run(options))


zookeeper_app = make_app("zookeeper", "Run a ZooKeeper server, or look into the nodes of any.", no_args_is_help=False)


@zookeeper_app.callback(invoke_without_command=True)
def zookeeper(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Host name or address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")] = 2181,
    data: Annotated[
        str, typer.Option(help="Directory of the znode tree's files, created if missing.")
    ] = "ottla-zookeeper",
    tick_time: Annotated[
        int,
        typer.Option(
            "--tick-time-ms", min=1, help="ZooKeeper's tickTime: session timeouts are between 2 and 20 of it."
        ),
    ] = 2000,
    unclean_start: Annotated[
        bool,
        typer.Option(
            "--unclean-start", help="Start even if durable changes are missing from the files; they are lost then."
        ),
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Settings by the names of zoo.cfg, with logins and TLS; other options come before them.",
        ),
    ] = None,
) -> None:
    """Run a ZooKeeper server until SIGTERM or Ctrl-C. A change is on the disk when it is acknowledged."""
    if context.invoked_subcommand is not None:
        return
    from ottla.cli.zookeeper import ZooKeeperOptions, run

    sys.exit(run(ZooKeeperOptions(host, port, data, tick_time, unclean_start, config)))


@app.command()
def container() -> None:
    """Run one broker with the settings of KAFKA_… variables, as images of Apache Kafka do."""
    from ottla.cli.serve import run_container

    sys.exit(run_container())


@app.command("test-broker", context_settings={"allow_interspersed_args": False})
def broker_for_tests(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A command to run beside the broker, which ends with it: OTTLA_BOOTSTRAP_SERVER names it."),
    ] = None,
    host: Annotated[str, typer.Option(help="Host name or address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")] = 0,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="NAME:PARTITIONS", help="A topic to create; may be repeated."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting by its Kafka name; may be repeated."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Log directory; without, data stay in memory.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of the address.")] = False,
) -> None:
    """Run a broker for tests in memory, until its standard input is closed or its parent process ends.

    The first line that it prints is its address.
    """
    from ottla.cli.broker_for_tests import TestBrokerOptions, run

    topics, settings = tuple(topic or ()), tuple(config or ())
    sys.exit(run(TestBrokerOptions(host, port, topics, settings, data, as_json, tuple(command or ()))))


cluster_command(app)(produce)
cluster_command(app)(consume)
cluster_command(app)(top)
cluster_command(app)(doctor)
cluster_command(app)(search)
cluster_command(app)(copy)
app.command()(demo)
app.command()(backfill)
app.command()(profile)
cluster_command(app, "leader-election")(leader_election)
for znode_command in (ls, get, tree):
    zookeeper_app.command()(znode_command)
for group_app in (
    zookeeper_app,
    pipeline,
    log,
    rebalance,
    group,
    topic,
    reassign,
    replica,
    cluster,
    config_app,
    acl,
    broker,
    user,
    quota,
    token,
    transaction,
):
    app.add_typer(group_app)


def main() -> None:
    """Run the command line; a user's mistake ends with a message and an exit code, never with a traceback."""
    app()
