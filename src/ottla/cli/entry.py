"""The entry point: a fast path for `ottla serve` and `ottla zookeeper`, the whole command line for everything else.

The library that reads command lines, and the one that it checks values with, cost as much time and memory at start as
the broker itself. These commands with plain options do without them; everything else, `--help` and mistakes included,
is left to the whole command line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from ottla.cli.serve import ServeOptions
    from ottla.cli.zookeeper import ZooKeeperOptions

COMMAND = "serve"
ZOOKEEPER_COMMAND = "zookeeper"
#: Options that take a text or a number, with their fields; the one that takes nothing; the one that may be repeated.
TEXTS = {"--host": "host", "--data": "data", "--properties": "properties_file", "--zookeeper": "zookeeper"}
NUMBERS = {"--port": "port", "--id": "broker_id", "--zookeeper-port": "zookeeper_port"}
FLAG = "--durable"
SETTING = frozenset(("--config", "-c"))
#: Ports and ids have no more digits.
NUMBER_DIGITS = 10
LARGEST_PORT = 65535


def main() -> None:
    """Run the command line."""
    if (serve_options := plain_serve_options(sys.argv[1:])) is not None:
        from ottla.cli.serve import run as serve

        sys.exit(serve(serve_options))
    if (zookeeper_options := plain_zookeeper_options(sys.argv[1:])) is not None:
        from ottla.cli.zookeeper import run as run_zookeeper

        sys.exit(run_zookeeper(zookeeper_options))
    from ottla.cli.main import main as whole_way

    whole_way()


def plain_serve_options(arguments: Sequence[str]) -> ServeOptions | None:
    """The options of `ottla serve OPTION…`, None where it is another command or anything about them is not plain."""
    if not arguments or arguments[0] != COMMAND:
        return None
    values: dict[str, Any] = {}
    settings: list[str] = []
    for name, value in _options(arguments[1:]):
        if name == FLAG and value is None:
            values["durable"] = True
        elif name in SETTING and value is not None:
            settings.append(value)
        elif name in TEXTS and value is not None:
            values[TEXTS[name]] = value
        elif name in NUMBERS and _is_number(value):
            values[NUMBERS[name]] = int(value)
        else:
            return None
    from ottla.cli.serve import ServeOptions

    return ServeOptions(**values, settings=tuple(settings))


def plain_zookeeper_options(arguments: Sequence[str]) -> ZooKeeperOptions | None:
    """The same of `ottla zookeeper OPTION…`."""
    if not arguments or arguments[0] != ZOOKEEPER_COMMAND:
        return None
    from ottla.cli.zookeeper import ZooKeeperOptions

    options = ZooKeeperOptions()
    for name, value in _options(arguments[1:]):
        if name == "--host" and value is not None:
            options = replace(options, host=value)
        elif name == "--data" and value is not None:
            options = replace(options, data=value)
        elif name == "--port" and _is_number(value, 0, LARGEST_PORT):
            options = replace(options, port=int(value))
        elif name == "--tick-time-ms" and _is_number(value, 1):
            options = replace(options, tick_time_ms=int(value))
        else:
            return None
    return options


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Options with their values, in order; None where there is none."""
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        yield name, value if equals else None if argument == FLAG else next(left, None)


def _is_number(value: str | None, least: int = 0, most: int = 10**NUMBER_DIGITS - 1) -> TypeGuard[str]:
    return (
        value is not None
        and value.isascii()
        and value.isdigit()
        and len(value) <= NUMBER_DIGITS
        and least <= int(value) <= most
    )
