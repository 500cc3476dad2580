"""The page of all settings (docs/settings.md), made from their declarations: `python -m ottla.config.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ottla.config.declarations import coordination, groups, log, ottla, replication, security, server, topic
from ottla.config.settings import (
    HONOURED,
    INTERNAL_SETTINGS,
    NO_EFFECT,
    TOPIC_SYNONYMS,
    Row,
    Setting,
)

_INTRODUCTION = """\
# Settings

Every setting of Apache Kafka 3.9's broker and topics is known, under its name, with its default and its meaning, and a
`server.properties` of Kafka's is accepted. What becomes of a setting here is in the last column:

- *honoured*: it does what it does in Kafka;
- *no effect*: it is accepted, checked, and does nothing here, which a warning says when it is set to anything but its
  default;
- *refused*: set to anything but its default it stops the broker from starting, since passing it over would be worse.

A name that is not known is a refusal on the command line (`-c`), a warning in a file; both name the nearest known one.

Set them with `ottla serve -c name=value` or `ottla serve --properties server.properties`.
"""

_SECTIONS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    ("Of ottla alone", ottla.ROWS),
    ("Server: connections, listeners, limits", server.ROWS),
    ("Log", log.ROWS),
    ("Groups and transactions", groups.ROWS),
    ("Replication, quotas, tiered storage", replication.ROWS),
    ("ZooKeeper and KRaft", coordination.ROWS),
    ("Security", security.ROWS),
)

_EFFECTS = {HONOURED: "honoured", NO_EFFECT: "no effect"}


def render() -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION]
    for title, rows in _SECTIONS:
        parts.append(_section(title, (Setting._make(row) for row in rows)))
    parts.append(
        _section("Given while brokers run, not in a file", (Setting._make(row) for row in replication.RUN_TIME_ROWS))
    )
    parts.append(
        _section("Topics", (Setting._make(row) for row in topic.ROWS))
        + "\nWhere a topic does not set something itself, it has the broker's:\n\n"
        + "\n".join(
            f"- `{name}`: {', else '.join(f'`{synonym}`' for synonym in synonyms)}"
            for name, synonyms in TOPIC_SYNONYMS.items()
        )
        + "\n"
    )
    return "\n".join(parts)


def _section(title: str, settings: Iterable[Setting]) -> str:
    lines = [f"## {title}", "", "| setting | type | default | meaning | here |", "|---|---|---|---|---|"]
    lines.extend(_line(setting) for setting in settings)
    return "\n".join(lines) + "\n"


def _line(setting: Setting) -> str:
    meaning = setting.documentation
    if setting.valid:
        meaning += f" Valid: {_valid(setting.valid)}."
    if setting.name in INTERNAL_SETTINGS:
        meaning += " (Internal to Kafka.)"
    effect = _EFFECTS.get(setting.effect, "refused")
    default = "" if setting.default is None else f"`{setting.default}`" if setting.default else "empty"
    return f"| `{setting.name}` | {setting.type} | {default} | {meaning.replace('|', chr(92) + '|')} | {effect} |"


def _valid(valid: str) -> str:
    if valid == "version":
        return "a version of Kafka"
    return f"`{valid}`" if valid.startswith("[") else valid


if __name__ == "__main__":
    sys.stdout.write(render())
