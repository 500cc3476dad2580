"""Where the command line begins: at its short way for `ottla serve`, or at the whole of it.

The library that reads command lines, and the one that it checks values with, cost as much time and memory at start as
the broker itself. `ottla serve` with plain options does without them; whatever is not plain, `--help` and mistakes
included, goes the whole way and is told there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.cli.serve import ServeOptions

COMMAND = "serve"
#: Options that take a text or a number, the one that takes nothing, and the one that may be repeated.
TEXTS = frozenset(("--host", "--data", "--properties", "--zookeeper"))
NUMBERS = frozenset(("--port", "--id", "--zookeeper-port"))
FLAG = "--durable"
SETTING = frozenset(("--config", "-c"))
#: Longer numbers are nobody's port or id.
NUMBER_DIGITS = 10


def main() -> None:
    """Run the command line."""
    options = plain_serve_options(sys.argv[1:])
    if options is None:
        from ottla.cli.main import main as whole_way

        whole_way()
        return
    from ottla.cli.serve import run

    sys.exit(run(options))


def plain_serve_options(arguments: Sequence[str]) -> ServeOptions | None:
    """The options of `ottla serve OPTION…`, None where it is another command or anything about them is not plain."""
    if not arguments or arguments[0] != COMMAND:
        return None
    texts: dict[str, str] = {}
    numbers: dict[str, int] = {}
    settings: list[str] = []
    durable = False
    left = iter(arguments[1:])
    for argument in left:
        if argument == FLAG:
            durable = True
            continue
        name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        if not equals:
            given = next(left, None)
            if given is None:
                return None
            value = given
        if name in SETTING:
            settings.append(value)
        elif name in TEXTS:
            texts[name] = value
        elif name in NUMBERS and value.isascii() and value.isdigit() and len(value) <= NUMBER_DIGITS:
            numbers[name] = int(value)
        else:
            return None
    from ottla.cli.serve import ServeOptions

    return ServeOptions(
        host=texts.get("--host"),
        port=numbers.get("--port"),
        data=texts.get("--data"),
        broker_id=numbers.get("--id"),
        settings=tuple(settings),
        properties_file=texts.get("--properties"),
        durable=durable,
        zookeeper=texts.get("--zookeeper"),
        zookeeper_port=numbers.get("--zookeeper-port"),
    )
