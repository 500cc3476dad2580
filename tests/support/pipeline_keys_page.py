"""docs/pipeline-keys.md: every key of a pipeline's file, out of the tables that the reader checks against."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.spark.pipelines.settings import keys
from ottla.spark.pipelines.settings.keys import Key

_HEAD = """\
# Keys of a pipeline's file

MADE_BY

An unknown key, a value of another type and keys that contradict each other are one error each, which names the
key and the cure. [Pipelines](pipelines.md) shows files at work.

In every string `${env:NAME}` is a variable of the environment, `${file:PATH}` the text of a file without the line end,
`${here}` the folder of the pipeline's file, and `$${` stands for `${`. What comes from the first two is a secret: it is
shown as `***` wherever ottla shows anything. `name` and `kind` stand in the file itself.

Paths are relative to the file, or URLs. A duration is a number and a unit (`"10 seconds"`, `"1 hour 30 minutes"`), a
size `"128 MiB"`. A key with dots may stand in quotes or as tables: `kafka.security.protocol = "SSL"`.
"""
#: Heading, what is said below it, the keys.
_SECTIONS: tuple[tuple[str, str, Sequence[Key]], ...] = (
    ("At the top", "", keys.TOP),
    ("[spark]", "Where the query runs; see [where it runs](pipelines.md#where-it-runs).", keys.SPARK),
    ("[trigger]", "", keys.TRIGGER),
    (
        "[source]",
        "SQL sees it as `source`. Several sources are `[sources.NAME]`, each a view of its name. With decoded values "
        "the view has their typed columns in the place of `value`.",
        keys.SOURCE,
    ),
    ("[tables.NAME]", "A table that does not stream; it is read again in each batch.", keys.STATIC_TABLE),
    (
        "[[steps]]",
        "In order; the last one feeds the sink. Without any, the rows of the only source go to the sink as they are.",
        keys.STEP,
    ),
)
_SINK_KIND = (
    "`kind` says which sink it is, and the rest depends on it. `[dead_letters]` takes a table or a topic for records "
    "that do not parse; without it they are left out of the rows."
)


def pipeline_keys_page(made_by: str) -> str:
    """The page."""
    lines = [_HEAD.replace("MADE_BY", made_by)]
    for heading, text, rows in _SECTIONS:
        lines += [f"## {heading}\n", *([f"{text}\n"] if text else []), *_table(rows), ""]
    lines += [f"## [sink] and [dead_letters]\n\n{_SINK_KIND}\n"]
    for kind, rows in keys.SINKS.items():
        lines += [f"### kind = {kind}\n", *_table(rows), ""]
    lines += [
        '## [mirror]\n\nOf `kind = "mirror"` only, which has no other of these tables but `[spark]` and `[trigger]`.\n'
    ]
    return "\n".join([*lines, *_table(keys.MIRROR)]) + "\n"


def _table(rows: Sequence[Key]) -> list[str]:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in rows:
        default = "required" if key.required else key.default
        choices = f" One of {', '.join(f'`{each}`' for each in key.choices)}." if key.choices else ""
        shown = key.type.value.split(",", maxsplit=1)[0]
        lines.append(f"| `{key.name}` | {shown} | {default} | {key.meaning}{choices} |")
    return lines
