"""The report of a run: one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from ottla.spark.listening.text import span
from ottla.spark.pipelines.running.plots import draw
from ottla.spark.pipelines.running.progress import RunHistory, size
from ottla.spark.pipelines.settings.references import redacted

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ottla pipeline {name}</title>
<style>
body {{ margin: 0; background: #f5f7f9; color: #22303c; font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }}
main {{ max-width: 1320px; margin: 0 auto; padding: 2rem 1.25rem 3rem; }}
h1 {{ margin: 0; font-size: 1.8rem; }}
p {{ color: #5b6975; }}
.cards, .plots {{ display: grid; gap: 0.9rem; }}
.cards {{ grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); margin-bottom: 1rem; }}
.plots {{ grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); }}
.card, figure {{ background: #fff; border: 1px solid #e3e8ec; border-radius: 10px; margin: 0; padding: 0.9rem 1.1rem; }}
.card b {{ display: block; font-size: 1.4rem; font-variant-numeric: tabular-nums; }}
.card span {{ color: #5b6975; font-size: 0.86rem; }}
figure svg {{ width: 100%; height: auto; display: block; }}
</style>
</head>
<body>
<main>
<h1>ottla pipeline {name}</h1>
<p>{lead}</p>
<div class="cards">{cards}</div>
<div class="plots">{plots}</div>
<p>Made {made} by <code>ottla pipeline run</code>.</p>
</main>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class RunReport:
    """The contents of a report: the pipeline's name and kind, how the run ended, its batches, and the secrets to hide.

    `seconds` is the length of the run.
    """

    name: str
    kind: str
    ending: str
    seconds: float
    history: RunHistory
    secrets: tuple[str, ...] = ()


def write_report(report: RunReport, path: Path, now: datetime | None = None) -> None:
    """Write the page. Raises MissingExtraError without matplotlib, OSError."""
    history = report.history
    plots = draw(history.samples) if history.samples else []
    page = _PAGE.format(
        name=escape(report.name),
        lead=escape(redacted(f"kind {report.kind}; {report.ending}", report.secrets)),
        cards="".join(
            f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
            for name, value in _cards(report)
        ),
        plots="".join(f"<figure>{each}</figure>" for each in plots) or "<p>No batch has ended.</p>",
        made=(now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC"),
    )
    path.write_text(page, encoding="utf-8")


def _cards(report: RunReport) -> Iterator[tuple[str, str]]:
    history = report.history
    yield "run for", span(report.seconds)
    yield "batches", f"{history.batches:,}"
    yield "rows", f"{history.rows:,}"
    if history.busy_s:
        yield "rows/s in batches", f"{history.rows / history.busy_s:,.0f}"
        yield "longest batch", span(history.longest_s)
    if history.samples:
        last = history.samples[-1]
        yield "lag at the end", "not known" if last.lag_rows is None else f"{last.lag_rows:,} rows"
        if last.state_rows:
            yield "state at the end", f"{last.state_rows:,} rows, {size(last.state_bytes)}"
