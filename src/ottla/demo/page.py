"""The report as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from ottla.demo.plots import draw_picture, draw_svg, plots
from ottla.demo.results import Results

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ottla demo: {name}</title>
<style>
:root {{ --ink: #22303c; --soft: #5b6975; --line: #e3e8ec; --good: #2c8a5b; --bad: #c0392b; --paper: #f5f7f9; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }}
main {{ max-width: 1320px; margin: 0 auto; padding: 2rem 1.25rem 3rem; }}
h1 {{ margin: 0; font-size: 1.8rem; letter-spacing: -0.02em; }}
h2 {{ margin: 2.2rem 0 0.8rem; font-size: 1.15rem; }}
p.lead {{ margin: 0.3rem 0 1.5rem; color: var(--soft); max-width: 60rem; }}
.cards {{ display: grid; gap: 0.9rem; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); }}
.card, figure, .sheet {{ background: #fff; border: 1px solid var(--line); border-radius: 10px; }}
.card {{ padding: 0.9rem 1.1rem; }}
.card b {{ display: block; font-size: 1.5rem; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }}
.card span {{ color: var(--soft); font-size: 0.86rem; }}
.plots {{ display: grid; gap: 0.9rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); }}
figure {{ margin: 0; padding: 0.7rem; }}
figure svg {{ width: 100%; height: auto; display: block; }}
.sheet {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: 0.5rem 0.9rem; border-top: 1px solid var(--line); vertical-align: top; }}
th {{ border-top: 0; color: var(--soft); font-weight: 600; font-size: 0.86rem; }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.ok {{ color: var(--good); font-weight: 700; }}
.failed {{ color: var(--bad); font-weight: 700; }}
footer {{ margin-top: 2rem; color: var(--soft); font-size: 0.86rem; }}
</style>
</head>
<body>
<main>
<h1>ottla demo: {name}</h1>
<p class="lead">{lead}</p>
<div class="cards">{cards}</div>
<h2>Checks</h2>
<div class="sheet"><table>{checks}</table></div>
<h2>Plots</h2>
<div class="plots">{plots}</div>
<h2>Why the group rebalanced</h2>
<div class="sheet"><table>
<tr><th>#</th><th>second</th><th>cause</th><th>members</th><th>moved</th><th>kept</th><th>longest pause</th></tr>
{rebalances}</table></div>
<footer>Made {made} by <code>ottla demo</code>.</footer>
</main>
</body>
</html>
"""


def write_report(results: Results, folder: Path) -> None:
    """Write the report to a folder: `report.png` with the plots, `report.html` with everything."""
    draw_picture(results, folder / "report.png")
    write_page(results, folder / "report.html")


def write_page(results: Results, path: Path) -> None:
    """Write the page."""
    feed = results.feed
    verdict = "Every check passed." if results.passed else "Some checks failed."
    text = _PAGE.format(
        name=escape(feed.name),
        lead=escape(
            f"{len(feed.events):,} events went through one broker while three Spark pipelines (online, archive, "
            f"mirror) followed in groups of their own and the members of a fourth group came and went. {verdict}"
        ),
        cards="".join(
            f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
            for name, value in cards(results)
        ),
        checks="".join(_check_row(check.passed, check.name, check.detail) for check in results.checks),
        plots="".join(f"<figure>{draw_svg(plot, results)}</figure>" for _, plot in plots()),
        rebalances="".join(_rebalance_rows(results)),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    path.write_text(text, encoding="utf-8")


def cards(results: Results) -> Iterable[tuple[str, str]]:
    """The figures that matter, each with its name."""
    loaded = results.seconds("loaded")
    yield "events", f"{len(results.feed.events):,}"
    yield "broker ready", f"{results.broker_ready_s:.2f} s"
    yield "Spark ready", f"{results.spark_ready_s:.1f} s"
    if loaded is not None:
        yield "loaded in", f"{loaded:.1f} s"
    for group in ("online", "archive", "mirror"):
        done = results.seconds(group)
        if done is not None:
            yield f"{group} done after", f"{done:.1f} s"
    yield "updates of the online totals", f"{results.online_updates:,}"
    yield "rebalances explained", f"{len(results.rebalances):,}"
    yield "whole demo", f"{results.total_s:.1f} s"


def _check_row(passed: bool, name: str, detail: str) -> str:
    mark = '<span class="ok">✓</span>' if passed else '<span class="failed">✗ failed</span>'
    return f"<tr><td>{mark}</td><td>{escape(name)}</td><td>{escape(detail)}</td></tr>\n"


def _rebalance_rows(results: Results) -> Iterable[str]:
    for number, each in enumerate(results.rebalances, start=1):
        at = each.started_at_ms / 1_000 - results.began_at
        values = (
            f"{at:.1f}",
            each.why,
            str(each.members),
            str(each.moved),
            str(each.kept),
            f"{each.longest_pause_ms} ms",
        )
        cells = "".join(
            f"<td>{escape(value)}</td>" if position == 1 else f'<td class="number">{escape(value)}</td>'
            for position, value in enumerate(values)
        )
        yield f'<tr><td class="number">{number}</td>{cells}</tr>\n'
