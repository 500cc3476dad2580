"""How settings are shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.cli.terminal import Cell, Column, Style, Terminal, attributes, printable
from ottla.client.admin.model import ConfigEntry, ConfigResource, ResourceType

#: Where a value comes from, in few words.
SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "file",
    "DEFAULT_CONFIG": "default",
}


#: In place of a password.
HIDDEN = "(hidden)"


class SettingChange(NamedTuple):
    """A change of one setting; `new` is None where the default or an inherited value comes back."""

    resource: ConfigResource
    name: str
    now: str | None
    new: str | None
    #: Why it needs care; None if it does not.
    care: str | None


_SETTINGS: tuple[Column[ConfigEntry], ...] = (
    Column("SETTING", lambda each: each.name),
    Column("VALUE", lambda each: _value(each), may_shrink=True),
    Column("SOURCE", lambda each: _source_text(each)),
    Column("INSTEAD OF", lambda each: Cell(_synonyms(each), Style.FAINT), may_shrink=True),
)
CHANGES: tuple[Column[SettingChange], ...] = (
    Column("OF", lambda each: Cell(entity_text(each.resource), Style.NAME)),
    Column("SETTING", lambda each: each.name),
    Column("NOW", lambda each: each.now, may_shrink=True),
    Column("NEW", lambda each: Cell("(default)" if each.new is None else each.new, Style.BUSY), may_shrink=True),
    Column("CARE", lambda each: Cell(each.care or "", Style.BAD)),
)


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
    terminal.table(_SETTINGS, entries)


def setting_row(resource: ConfigResource, entry: ConfigEntry) -> dict[str, Any]:
    """A setting as an object, with whose it is."""
    return {**_entity(resource), **setting_fields(entry)}


def setting_fields(entry: ConfigEntry) -> dict[str, Any]:
    """A setting as an object; the value of a sensitive one is null."""
    return {
        **attributes(entry, "name", "value", "source", "type"),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [attributes(each, "name", "value", "source") for each in entry.synonyms],
    }


def change_row(change: SettingChange, *, done: bool) -> dict[str, Any]:
    """A change as an object."""
    return {**_entity(change.resource), **attributes(change, "name", "now", "new", "care"), "changed": done}


def _entity(resource: ConfigResource) -> dict[str, Any]:
    return {"entity": resource.type.name.lower(), "entity_name": resource.name or None}


def _source_text(entry: ConfigEntry) -> str:
    source = SOURCES.get(entry.source, entry.source)
    # Apache Kafka says of throttles, too, that they are read-only: they are in no list of dynamic settings.
    is_fixed = entry.is_read_only and not entry.source.startswith("DYNAMIC")
    return f"{source}, at the start only" if is_fixed else source


def _value(entry: ConfigEntry) -> Cell:
    style = Style.FAINT if entry.is_default else Style.BUSY if entry.source.startswith("DYNAMIC") else Style.PLAIN
    return Cell(HIDDEN if entry.is_sensitive else "-" if entry.value is None else entry.value, style)


def _synonyms(entry: ConfigEntry) -> str:
    """Values that this one hides, with the names of those that may be in another unit, as `log.retention.hours`."""
    return ", ".join(
        f"{'' if each.name.endswith(entry.name) else f'{each.name}='}{each.value} "
        f"({SOURCES.get(each.source, each.source)})"
        for each in entry.synonyms[1:]
    )
