"""The commands of `ottla config`, which work with any Kafka cluster over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.config import COMMAND
from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.terminal import Terminal, write_json

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

app = make_app("config", "Show and change settings of topics and brokers while the brokers run.")

OfTopics = Annotated[list[str] | None, typer.Option("--topic", "-t", metavar="NAME", help="A topic; may be repeated.")]
OfBrokers = Annotated[
    list[int] | None, typer.Option("--broker", metavar="ID", min=0, help="A broker; may be repeated.")
]
OfAllBrokers = Annotated[
    bool, typer.Option("--broker-defaults", help="What all brokers have that do not set it themselves.")
]


@cluster_command(app)
def describe(
    shared: ClusterOptions,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[SETTING]...", help="Names of settings [all that are set].")
    ] = None,
    topics: OfTopics = None,
    brokers: OfBrokers = None,
    broker_defaults: OfAllBrokers = False,
    everything: Annotated[bool, typer.Option("--all", help="Also settings that have their defaults.")] = False,
) -> None:
    """Show settings, where each value comes from, and what it overrides.

    Ends with 0, with 1 where a topic, broker or setting is not there, with 2 where the cluster could not be asked.
    """
    from ottla.cli.config.changes import Entities, report_errors
    from ottla.cli.config.views import setting_row, show_settings
    from ottla.client.admin.configs import ConfigAdmin
    from ottla.client.errors import ClientError

    entities = Entities(tuple(topics or ()), tuple(brokers or ()), broker_defaults)

    async def work(cluster: Cluster) -> int:
        try:
            found = await ConfigAdmin(cluster).describe_configs(entities.resources(), include_synonyms=True)
        except ClientError as error:
            return report_errors(error, ())
        terminal, code = Terminal.standard_output(), 0
        for at, (resource, entries) in enumerate(found.items()):
            named = [name for name in dict.fromkeys(settings or ()) if name in entries]
            for name in set(settings or ()).difference(named):
                code = COMMAND.report(f"{resource} has no setting {name}")
            wanted = named if settings else sorted(entries)
            shown = [entries[name] for name in wanted if settings or everything or not entries[name].is_default]
            for entry in shown if shared.as_json else ():
                write_json(setting_row(resource, entry))
            if not shared.as_json:
                terminal.line() if at else None
                show_settings(terminal, resource, shown)
        return code

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app, "set")
def set_command(
    shared: ClusterOptions,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="Settings; of a list KEY+=VALUE adds, and KEY-=VALUE takes away."),
    ] = None,
    properties: Annotated[
        str | None,
        typer.Option("--properties", metavar="FILE", help="Settings of a file, as for secrets: others see arguments."),
    ] = None,
    topics: OfTopics = None,
    brokers: OfBrokers = None,
    broker_defaults: OfAllBrokers = False,
    yes: Yes = False,
) -> None:
    """Set settings; all brokers obey at once.

    The cluster checks them, and they are shown. Where a change deletes records or may lose some, or a broker has no
    setting of that name, you are asked first.

    Ends with 0, with 1 where something was not changed, with 2 where it could not be done as asked.
    """
    from ottla.cli.config.changes import Entities, change_settings, parse_changes

    entities = Entities(tuple(topics or ()), tuple(brokers or ()), broker_defaults)
    COMMAND.run_with_cluster(
        shared,
        lambda cluster: change_settings(
            cluster, entities, parse_changes(changes or (), properties), yes=yes, as_json=shared.as_json
        ),
    )


@cluster_command(app)
def unset(
    shared: ClusterOptions,
    settings: Annotated[list[str], typer.Argument(metavar="SETTING...", help="Names of settings.")],
    topics: OfTopics = None,
    brokers: OfBrokers = None,
    broker_defaults: OfAllBrokers = False,
    yes: Yes = False,
) -> None:
    """Take settings back: what they stood in place of is in force again.

    The changes are shown. Where one deletes records or may lose some, you are asked first.

    Ends with 0, with 1 where something was not changed, with 2 where it could not be done as asked.
    """
    from ottla.cli.config.changes import Entities, change_settings
    from ottla.client.admin.model import ConfigOperation

    entities = Entities(tuple(topics or ()), tuple(brokers or ()), broker_defaults)
    operations = [ConfigOperation("delete", name) for name in settings]
    COMMAND.run_with_cluster(
        shared, lambda cluster: change_settings(cluster, entities, operations, yes=yes, as_json=shared.as_json)
    )
