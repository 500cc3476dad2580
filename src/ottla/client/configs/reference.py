"""The reference of all client settings (docs/client-settings.md), made from `config/settings.tsv`."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.configs.foreign import INSTEAD, RENAMED
from ottla.client.configs.settings import ADMIN, CONSUMER, PRODUCER, SECURITY, SETTINGS_OF, WITHOUT_EFFECT, unit_of
from ottla.config.settings import HONOURED, NO_EFFECT, SECTIONS, Setting

_INTRODUCTION = """\
# Settings of clients

Every setting of Apache Kafka 3.9's producer, consumer and admin client is known under its name, with its default. Give
them as a mapping of Kafka's names, as Python keywords with underscores, or both:

```python
Producer({"bootstrap.servers": "localhost:9092", "linger.ms": "5"}, compression_type="zstd")
```

Values are text, as in a properties file, or Python's own: numbers, `True` and `False`, lists, classes, objects,
functions. `None` means "not set". A setting given twice with different values, an unknown name, a value out of range,
and settings that contradict each other raise `InvalidConfigError`, which names all problems at once and what to do.

What becomes of a setting is in the last column: *honoured*, *no effect* (accepted and checked; a warning is logged when
it is set to anything but its default), or *refused* (set to anything but its default it is an error, since passing it
over would be worse).
"""

_SECTIONS = (
    ("All clients", PRODUCER, SECTIONS["clients"]),
    ("Producer", PRODUCER, SECTIONS[PRODUCER]),
    ("Consumer", CONSUMER, SECTIONS[CONSUMER]),
    ("Admin client", ADMIN, SECTIONS[ADMIN]),
    ("TLS and logins", PRODUCER, SECURITY),
)

_OF_SERIALIZERS = """\
## Of serializers

`StringSerializer` takes its encoding from `key.serializer.encoding` (for keys) or `value.serializer.encoding`, else
from `serializer.encoding`, else it is UTF-8; `StringDeserializer` likewise from `key.deserializer.encoding`,
`value.deserializer.encoding`, `deserializer.encoding`. Any name of Python's encodings, and of Java's, will do.

Serializers, partitioners, interceptors and assignors of your own are given all settings by `configure`; those that only
they know are listed in the class: `config_names = ("my.url",)`.
"""

_EFFECTS = {HONOURED: "honoured", NO_EFFECT: "no effect"}


def render() -> str:
    """Render the page as Markdown."""
    sections = [_INTRODUCTION]
    for title, kind, names in _SECTIONS:
        sections.append(_section(title, (SETTINGS_OF[kind][name] for name in names)))
    sections += [_OF_SERIALIZERS, _names_of_others()]
    return "\n".join(sections)


def _section(title: str, settings: Iterable[Setting]) -> str:
    lines = [f"## {title}", "", "| setting | type | default | unit | meaning | here |", "|---|---|---|---|---|---|"]
    lines.extend(_line(setting) for setting in settings)
    return "\n".join(lines) + "\n"


def _line(setting: Setting) -> str:
    meaning = setting.documentation
    if setting.valid:
        meaning += f" Valid: {f'`{setting.valid}`' if setting.valid.startswith('[') else setting.valid}."
    default = "" if setting.default is None else f"`{setting.default}`" if setting.default else "empty"
    without = [kind for kind, names in WITHOUT_EFFECT.items() if setting.name in names]
    effect = _EFFECTS.get(setting.effect, "refused") + "".join(f" ({kind}: no effect)" for kind in without)
    cells = (f"`{setting.name}`", setting.type, default, unit_of(setting), meaning.replace("|", r"\|"))
    return f"| {' | '.join(cells)} | {effect} |"


def _names_of_others() -> str:
    lines = [
        "## Names of other clients",
        "",
        "Settings of librdkafka, confluent-kafka, kafka-python, aiokafka and older clients of Kafka's that have",
        "another name here, or none. Each is an error that says this.",
        "",
        "| there | here |",
        "|---|---|",
    ]
    here = {name: " or ".join(f"`{one}`" for one in names) for name, names in RENAMED.items()} | INSTEAD
    lines.extend(f"| `{name}` | {here[name]} |" for name in sorted(here))
    return "\n".join(lines) + "\n"
