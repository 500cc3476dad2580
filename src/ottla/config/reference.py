"""The page of all settings (docs/settings.md), made from `settings.tsv`: `python -m ottla.config.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ottla.config.settings import HONOURED, INTERNAL_SETTINGS, NO_EFFECT, SECTIONS, TOPIC_SYNONYMS, Setting

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

_TITLES = {
    "ottla": "Of ottla alone",
    "server": "Server: connections, listeners, limits",
    "log": "Log",
    "groups": "Groups and transactions",
    "replication": "Replication, quotas, tiered storage",
    "coordination": "ZooKeeper and KRaft",
    "security": "Security",
    "run time": "Given while brokers run, not in a file",
    "topic": "Topics",
}

_EFFECTS = {HONOURED: "honoured", NO_EFFECT: "no effect"}


def render() -> str:
    """The page as Markdown."""
    pages = [_INTRODUCTION]
    pages += [_section(title, SECTIONS[section].values()) for section, title in _TITLES.items()]
    synonyms = "\n".join(
        f"- `{name}`: {', else '.join(f'`{synonym}`' for synonym in synonyms)}"
        for name, synonyms in TOPIC_SYNONYMS.items()
    )
    pages[-1] += f"\nWhere a topic does not set something itself, it has the broker's:\n\n{synonyms}\n"
    return "\n".join(pages)


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
