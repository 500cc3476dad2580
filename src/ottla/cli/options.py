"""The options that commands share, and how a group of commands is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

DEFAULT_SERVERS = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 15.0

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., None])

Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", help="One or more host:port of the cluster.", envvar="OTTLA_BOOTSTRAP_SERVER"
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds that brokers have to answer.", min=0.1)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of tables.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", "--execute", help="Make the change without asking; else it is only shown.")
]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster that a command works with, the time that it has to answer, and how results are shown."""

    servers: Servers = DEFAULT_SERVERS
    timeout_s: Timeout = DEFAULT_TIMEOUT_S
    as_json: Json = False


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
        shared = inspect.signature(ClusterOptions, eval_str=True).parameters
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @wraps(command)
        def run(**values: Any) -> None:
            options = ClusterOptions(**{each: values.pop(each) for each in shared})
            command(options, **values)

        parameters = [*own, *shared.values()]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name)(run)
        return command

    return add
