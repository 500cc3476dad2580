"""The plots of the report, by matplotlib: one picture of all, and each alone as SVG for the page."""

from __future__ import annotations

import contextlib
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ottla.demo.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2f6fb0", "#e07b39", "#3a9a6b", "#8a5fb0", "#c44d58", "#6b7a86")
_INK = "#22303c"
_MOST_ROWS = 20
_MOST_COLUMNS = 48
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#9aa7b1",
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#edf0f2",
    "xtick.color": "#5b6975",
    "ytick.color": "#5b6975",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "figure.facecolor": "white",
}

Plot = Callable[["Axes", Results], None]


def draw_picture(results: Results, path: Path) -> None:
    """All plots in one PNG."""
    with _pyplot() as plt:
        figure, axes = plt.subplots(2, 2, figsize=(16, 10.5), layout="constrained")
        for place, (_, plot) in zip(axes.flat, plots(), strict=True):
            plot(place, results)
        figure.suptitle(f"ottla demo: {results.feed.name}", x=0.01, ha="left", weight="bold", size=15, color=_INK)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def draw_svg(plot: Plot, results: Results) -> str:
    """One plot as the text of an SVG element."""
    with _pyplot() as plt:
        figure, axes = plt.subplots(figsize=(8.6, 4.9), layout="constrained")
        plot(axes, results)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None}, transparent=True)
        plt.close(figure)
    text = drawn.getvalue()
    return text[text.index("<svg") :]


def plots() -> tuple[tuple[str, Plot], ...]:
    """The plots by name, in the order of the report."""
    return (("heat", plot_heat), ("days", plot_days), ("rebalances", plot_rebalances), ("throughput", plot_throughput))


def plot_heat(axes: Axes, results: Results) -> None:
    """The online pipeline's result: mean measure, or events, per key and time."""
    feed = results.feed
    columns, column_of, label = _time_columns(results)
    events: Counter[str] = Counter()
    cells: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (start, key), total in results.online.items():
        name = "none" if key is None else key
        events[name] += total.events
        cell = cells[name, column_of(start)]
        cell[0] += total.total if feed.measure_field else total.events
        cell[1] += total.measured
    what = f"mean {feed.measure_field}" if feed.measure_field else "events"
    more = f", the {_MOST_ROWS} most frequent" if len(events) > _MOST_ROWS else ""
    when = "hour" if label.startswith("hour") else "time"
    axes.set_title(f"Online: {what} per {feed.group_field or 'key'} and {when}{more}")
    axes.set_xlabel(label)
    axes.grid(visible=False)
    rows = [name for name, _ in events.most_common(_MOST_ROWS)]
    if not rows:
        return
    grid = [
        [_cell(cells.get((row, column)), mean=bool(feed.measure_field)) for column in range(len(columns))]
        for row in rows
    ]
    low, high = _range(grid)
    # The few cells with hardly any events would otherwise take all the colours for themselves.
    image = axes.imshow(grid, aspect="auto", cmap="YlOrRd", vmin=low, vmax=high, interpolation="nearest")
    axes.set_yticks(range(len(rows)), [_short(row) for row in rows])
    step = max(1, len(columns) // 12)
    axes.set_xticks(range(0, len(columns), step), columns[::step])
    bar = axes.figure.colorbar(image, ax=axes, pad=0.01, aspect=30)
    bar.outline.set_visible(False)


def plot_days(axes: Axes, results: Results) -> None:
    """The archive: events per day, by place where there is one."""
    feed = results.feed
    folders = feed.folders()
    days = sorted({day for day, _ in folders})
    places = Counter(event.place for event in feed.events)
    when = [date.fromisoformat(day) for day in days]
    for number, (place, _) in enumerate(places.most_common(len(COLOURS))):
        counts = [folders.get((day, place), 0) for day in days]
        axes.plot(
            when,  # type: ignore[arg-type]
            counts,
            color=COLOURS[number],
            linewidth=1.2,
            marker="o" if len(days) < 40 else "",
            markersize=3.5,
            label=str(place),
        )
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    by = f" and {feed.place_field}" if feed.place_field else ""
    more = f" (the {len(COLOURS)} most frequent)" if len(places) > len(COLOURS) else ""
    axes.set_title(f"Archive: {_plural(feed.name)} per day{by}{more}")
    if feed.place_field:
        axes.legend(ncols=len(COLOURS), loc="upper left", fontsize=9)
        axes.set_ylim(top=max(folders.values()) * 1.15)
    for label in axes.get_xticklabels():
        label.set_rotation(20)


def plot_rebalances(axes: Axes, results: Results) -> None:
    """Plot the partitions of the ordinary group's members over time, and its rebalances."""
    last = max((sample.at_s for sample in results.samples), default=1.0)
    for lane, member in enumerate(results.members):
        since, owned = None, 0
        for at_s, event, partitions in [*member.history, (results.began_at + last, "end", [])]:
            at = at_s - results.began_at
            if since is not None and owned:
                share = owned / results.partitions
                axes.barh(lane, at - since, left=since, height=0.6, color=COLOURS[0], alpha=0.25 + 0.75 * share)
                if at - since > last / 25:
                    axes.text(
                        (at + since) / 2, lane, str(owned), ha="center", va="center", color="white", weight="bold"
                    )
            since, owned = at, len(partitions)
            if event == "killed":
                axes.plot([at], [lane], marker="x", color=COLOURS[4], markersize=9, markeredgewidth=2.5)
    for number, rebalance in enumerate(results.rebalances, start=1):
        at = rebalance.started_at_ms / 1_000 - results.began_at
        axes.axvline(at, color=COLOURS[1], linewidth=1.1, linestyle=(0, (4, 2)))
        axes.text(at, -0.72, str(number), color=COLOURS[1], ha="center", va="bottom", weight="bold", fontsize=9)
    axes.set_yticks(range(len(results.members)), [member.name for member in results.members])
    axes.set_ylim(len(results.members) - 0.4, -0.75)
    axes.set_xlim(0, last)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("seconds since the start; bars: partitions owned, dashed: rebalances, numbered as in the list")
    axes.set_title("Consumer group: partitions per member, and its rebalances", pad=14)


def plot_throughput(axes: Axes, results: Results) -> None:
    """How many records were loaded and processed, over time."""
    names = list(results.samples[-1].done) if results.samples else []
    for number, name in enumerate(names):
        progress = [(sample.at_s, sample.done.get(name, 0)) for sample in results.samples]
        axes.plot(
            [at for at, _ in progress],
            [done / 1_000 for _, done in progress],
            label=name,
            color=_INK if number == 0 else COLOURS[number - 1],
            linewidth=2.4 if number == 0 else 1.8,
        )
    axes.set_xlabel("seconds since the start")
    axes.set_ylabel("thousand records")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    if names:
        axes.legend(loc="upper left")
    axes.set_title("Throughput: loaded by the producer, processed by each group")


def _time_columns(results: Results) -> tuple[list[str], Callable[[int], int], str]:
    """Column names, the column of a bucket's start, and the axis' label: hours of the day, or stretches of time."""
    feed = results.feed
    first, last = feed.events[0].time_ms, feed.events[-1].time_ms
    zone = ZoneInfo(feed.timezone)
    if feed.bucket_ms <= 3_600_000 and last - first > 2 * 86_400_000:
        hours = [f"{hour:02d}" for hour in range(24)]
        return (
            hours,
            lambda start: datetime.fromtimestamp(start / 1_000, zone).hour,
            f"hour of the day ({feed.timezone})",
        )
    base = first // feed.bucket_ms * feed.bucket_ms
    buckets = (last - base) // feed.bucket_ms + 1
    width = -(-buckets // _MOST_COLUMNS) * feed.bucket_ms
    count = (last - base) // width + 1
    form = "%Y-%m-%d" if width >= 86_400_000 else "%m-%d %H:%M"
    names = [datetime.fromtimestamp((base + column * width) / 1_000, zone).strftime(form) for column in range(count)]
    return names, lambda start: (start - base) // width, f"time ({feed.timezone})"


def _cell(found: list[float] | None, *, mean: bool) -> float:
    if found is None or (mean and not found[1]):
        return float("nan")
    return found[0] / found[1] if mean else found[0]


def _range(grid: list[list[float]]) -> tuple[float, float]:
    """The range of colours: without the highest and lowest twentieth."""
    values = sorted(value for row in grid for value in row if value == value)
    if not values:
        return 0.0, 1.0
    low, high = values[len(values) // 20], values[-1 - len(values) // 20]
    return min(low, values[0] if low == high else low), high


def _short(text: str) -> str:
    return text if len(text) <= 16 else text[:15] + "…"


def _plural(name: str) -> str:
    return name if name == "flights" else "events"


@contextlib.contextmanager
def _pyplot() -> Iterator[Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(_STYLE):
        yield plt
