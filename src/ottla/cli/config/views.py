"""How settings are shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.cli.terminal import Cell, Column, Row, Style, Terminal, printable
from ottla.client.admin.model import ConfigEntry, ConfigResource, ResourceType

_SETTINGS = (
    Column("SETTING"),
    Column("VALUE", may_shrink=True),
    Column("SOURCE"),
    Column("INSTEAD OF", may_shrink=True),
)
_CHANGES = (
    Column("OF"),
    Column("SETTING"),
    Column("NOW", may_shrink=True),
    Column("NEW", may_shrink=True),
    Column("CARE"),
)
#: Where a value comes from, in few words.
SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "file",
    "DEFAULT_CONFIG": "default",
}


def entity_text(resource: ConfigResource) -> str:
    """Whose settings these are."""
    if resource.type == ResourceType.TOPIC:
        return resource.name
    return f"broker {resource.name}" if resource.name else "all brokers"


def show_settings(terminal: Terminal, resource: ConfigResource, entries: Sequence[ConfigEntry]) -> None:
    """The settings of a topic, a broker, or all brokers."""
    terminal.line(terminal.paint(printable(entity_text(resource)), Style.NAME))
    if not entries:
        terminal.line("  nothing is set; --all shows the defaults")
        return
    terminal.table(_SETTINGS, [_setting_cells(each) for each in entries])


def setting_row(resource: ConfigResource, entry: ConfigEntry) -> dict[str, Any]:
    """A setting as an object; the value of a sensitive one is null."""
    return {
        **_entity(resource),
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "type": entry.type,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [{"name": each.name, "value": each.value, "source": each.source} for each in entry.synonyms],
    }


def show_changes(
    terminal: Terminal, changes: Sequence[tuple[ConfigResource, str, str | None, str | None, str | None]]
) -> None:
    """Changes: whose, which, the value now and the new one (None: the default), and why it needs care."""
    rows: list[Row] = [
        (
            Cell(entity_text(resource), Style.NAME),
            name,
            "-" if now is None else now,
            Cell("(default)" if new is None else new, Style.BUSY),
            Cell(care or "", Style.BAD),
        )
        for resource, name, now, new, care in changes
    ]
    terminal.table(_CHANGES, rows)


def change_row(
    resource: ConfigResource, name: str, now: str | None, new: str | None, care: str | None, *, done: bool
) -> dict[str, Any]:
    """A change as an object."""
    return {**_entity(resource), "name": name, "now": now, "new": new, "care": care, "changed": done}


def _entity(resource: ConfigResource) -> dict[str, Any]:
    return {"entity": resource.type.name.lower(), "entity_name": resource.name or None}


def _source_text(entry: ConfigEntry) -> str:
    source = SOURCES.get(entry.source, entry.source)
    # Apache Kafka says of throttles, too, that they are read-only: they are in no list of dynamic settings.
    is_fixed = entry.is_read_only and not entry.source.startswith("DYNAMIC")
    return f"{source}, at the start only" if is_fixed else source


def _setting_cells(entry: ConfigEntry) -> Row:
    style = Style.FAINT if entry.is_default else Style.BUSY if entry.source.startswith("DYNAMIC") else Style.PLAIN
    shown = "(hidden)" if entry.is_sensitive else "-" if entry.value is None else entry.value
    others = [f"{each.value} ({SOURCES.get(each.source, each.source)})" for each in entry.synonyms[1:]]
    return (
        entry.name,
        Cell(shown, style),
        _source_text(entry),
        Cell(", ".join(others), Style.FAINT),
    )
