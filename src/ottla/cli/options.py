"""The options that commands share, and how a group of commands is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from ottla.cli.command import Command, CommandError
from ottla.cli.named_clusters import SERVERS, ClusterSettings, complete_cluster, named_cluster

DEFAULT_SERVERS = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 15.0
MOST_SECONDS = 2_147_483

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., None])

Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", help="One or more host:port of the cluster.", envvar="OTTLA_BOOTSTRAP_SERVER"
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="The cluster of this name in ~/.config/ottla/clusters.toml, in place of --bootstrap-server.",
        envvar="OTTLA_CLUSTER",
        autocompletion=complete_cluster,
    ),
]


def checked_seconds(seconds: float) -> float:
    """Seconds of an option whose milliseconds Kafka's protocol can carry. Raises BadParameter."""
    if not seconds <= MOST_SECONDS:
        raise typer.BadParameter(f"{seconds:g} is more than {MOST_SECONDS:,} seconds, or not a number")
    return seconds


def read_properties(path: str) -> dict[str, str]:
    """The settings of the file of --properties. Raises CommandError."""
    from ottla.config.properties import PropertiesError, parse_properties

    try:
        return parse_properties(Path(path).read_text())
    except OSError as error:
        raise CommandError(f"--properties {path}: {error.strerror}") from error
    except (PropertiesError, UnicodeDecodeError) as error:
        raise CommandError(f"--properties {path}: {error}") from error


Timeout = Annotated[
    float,
    typer.Option("--timeout", help="Seconds that brokers have to answer.", min=0.1, callback=checked_seconds),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of tables.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", "--execute", help="Make the change without asking; else it is only shown.")
]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster that a command works with, the time that it has to answer, and how results are shown.

    `settings` are those of a named cluster, by Kafka's names, and `registry` those of its schema registry.
    `is_chosen` says whether the user said which cluster it is.
    """

    servers: str = DEFAULT_SERVERS
    timeout_s: float = DEFAULT_TIMEOUT_S
    as_json: bool = False
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_chosen: bool = True


def _cluster_options(
    context: typer.Context,
    servers: Servers = DEFAULT_SERVERS,
    cluster_name: ClusterName = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> ClusterOptions:
    """The cluster that the options name. Raises CommandError."""
    settings, registry = _named(context, cluster_name)
    is_chosen = bool(settings) or _is_typed(context, "servers") is not None
    return ClusterOptions(settings.get(SERVERS, servers), timeout_s, as_json, settings, registry, is_chosen)


def _named(context: typer.Context, cluster_name: str | None) -> ClusterSettings:
    """Settings of the named cluster; none where --bootstrap-server says which cluster. Raises CommandError."""
    servers_typed, name_typed = (_is_typed(context, each) for each in ("servers", "cluster_name"))
    if cluster_name is None or (servers_typed and not name_typed):
        return ClusterSettings({}, {})
    if servers_typed is name_typed:
        both = "-b and --cluster" if name_typed else "OTTLA_BOOTSTRAP_SERVER and OTTLA_CLUSTER"
        raise CommandError(f"{both} both say which cluster; leave one of them out")
    return named_cluster(cluster_name)


def _is_typed(context: typer.Context, parameter: str) -> bool | None:
    """Whether an option is on the command line; False where the environment has it, None where it is nowhere."""
    source = context.get_parameter_source(parameter)
    return {"COMMANDLINE": True, "ENVIRONMENT": False}.get("" if source is None else source.name)


class OutputFormat(StrEnum):
    """How results are written, by the option that `--json` replaced."""

    table = "table"
    json = "json"


Format = Annotated[OutputFormat, typer.Option("--format", help="The former way to say --json.", hidden=True)]


def make_app(
    name: str,
    help_text: str,
    *,
    no_args_is_help: bool = True,
    group: type[TyperGroup] | None = None,
    add_completion: bool = False,
) -> typer.Typer:
    """A group of commands. Help is plain text: markup would take `[all]` for a style and leave it out."""
    return typer.Typer(
        name=name,
        help=help_text,
        cls=group,
        # Those of the outermost group count for all.
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=no_args_is_help,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def cluster_command(app: typer.Typer, name: str | None = None) -> Callable[[AnyCommand], AnyCommand]:
    """Add a command whose first parameter is its `ClusterOptions`: to its own options those are added."""

    def add(command: AnyCommand) -> AnyCommand:
        context, *shared = inspect.signature(_cluster_options, eval_str=True).parameters.values()
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            try:
                options = _cluster_options(context, **{each.name: values.pop(each.name) for each in shared})
            except CommandError as problem:
                Command(context.command_path).fail(str(problem))
            command(options, **values)

        app.command(name)(_with_parameters(run, [context, *own, *shared]))
        return command

    return add


#: The parameter of commands for the settings of a named cluster.
CLUSTER_SETTINGS = "of_cluster"


def or_named_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """The command with --cluster: its `servers` are then those of the named cluster, `of_cluster` all its settings."""
    context, _, cluster_name, *_ = inspect.signature(_cluster_options, eval_str=True).parameters.values()
    own = [
        each for each in inspect.signature(command, eval_str=True).parameters.values() if each.name != CLUSTER_SETTINGS
    ]

    @wraps(command)
    def run(context: typer.Context, cluster_name: str | None, **values: Any) -> None:
        try:
            settings = _named(context, cluster_name).settings
        except CommandError as problem:
            Command(context.command_path).fail(str(problem))
        servers = {"servers": settings[SERVERS]} if settings else {}
        command(**values | servers | {CLUSTER_SETTINGS: settings})

    after = 1 + next(at for at, each in enumerate(own) if each.name == "servers")
    return _with_parameters(run, [context, *own[:after], cluster_name, *own[after:]])


def _with_parameters(run: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """The function with the parameters that Typer makes options of."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
