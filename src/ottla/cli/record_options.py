"""Options that `ottla produce` and `ottla consume` share: places in a topic, settings of a client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.command import CommandError
from ottla.cli.options import read_properties

if TYPE_CHECKING:
    from ottla.cli.options import ClusterOptions
    from ottla.ops.topic_reading import Position

_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_DIGITS: Final = 19


class Encoding(StrEnum):
    """Encoding of a line: the text itself, bytes written as hexadecimal or base64, or JSON that a schema writes."""

    text = "text"
    hex = "hex"
    base64 = "base64"
    avro = "avro"
    protobuf = "protobuf"


ClientConfig = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the client by its Kafka name; repeatable."),
]
ClientProperties = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A file of client settings, as Kafka's tools take; -c takes precedence."),
]
Partitions = Annotated[
    str | None, typer.Option("--partition", "-p", metavar="0,3", help="Only these partitions, commas between.")
]


def parse_partitions(text: str | None) -> list[int] | None:
    """Numbers of `0,3`, None for none. Raises CommandError."""
    if text is None:
        return None
    numbers = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() and len(each) <= _MOST_DIGITS for each in numbers):
        raise CommandError(f"--partition {text}: expected numbers with commas between, as in --partition 0,3")
    return list(dict.fromkeys(map(int, numbers)))


def parse_position(option: str, text: str, now_ms: int) -> Position:
    """Position of `beginning`, `end`, an offset, `-N`, `1h` (ago), `@MS`, or a date and time. Raises CommandError."""
    from ottla.cli.group.offset_options import parse_datetime
    from ottla.client.errors import InvalidArgumentError
    from ottla.ops.topic_reading import Position, PositionType

    match text.lower():
        case "beginning" | "earliest" | "start":
            return Position(PositionType.BEGINNING)
        case "end" | "latest":
            return Position(PositionType.END)
    mark, digits = (text[0], text[1:]) if text[:1] in ("-", "@") else ("", text)
    if digits.isascii() and digits.isdigit() and len(digits) < _MOST_DIGITS:
        places = {"": PositionType.OFFSET, "-": PositionType.LAST, "@": PositionType.TIMESTAMP}
        return Position(places[mark], int(digits))
    if ago := _AGO.fullmatch(text):
        return Position(PositionType.TIMESTAMP, max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]]))
    try:
        return Position(PositionType.TIMESTAMP, parse_datetime(text))
    except InvalidArgumentError:
        raise CommandError(
            f"{option} {text}: expected beginning, end, an offset (42), the last ones (-10), a time ago (30s, 5m, 1h, "
            "7d), a date and time (2026-11-21T09:30:00, UTC unless it ends with a zone), or @ and milliseconds since "
            "1970"
        ) from None


def client_settings(shared: ClusterOptions, config: Sequence[str], properties: str | None) -> dict[str, str]:
    """Settings of a client by Kafka's names. Raises CommandError."""
    from ottla.cli.topic.changes import parse_configs

    settings = {**shared.settings, "default.api.timeout.ms": str(round(shared.timeout_s * 1000))}
    if properties is not None:
        settings |= read_properties(properties)
    named = settings.setdefault("bootstrap.servers", shared.servers)
    if named != shared.servers and shared.is_chosen:
        raise CommandError(
            f"--properties {properties} names bootstrap.servers={named}, and --bootstrap-server is {shared.servers}; "
            "give the one that is meant as --bootstrap-server"
        )
    return settings | parse_configs(config)


def settings_for(client: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings without those that only other kinds of clients have; an unknown one stays, for the client to refuse."""
    from ottla.client.configs.settings import SETTINGS_OF

    others = {name for each in SETTINGS_OF.values() for name in each} - SETTINGS_OF[client].keys()
    return {name: value for name, value in settings.items() if name not in others}
