"""The plots of a run's report, by matplotlib, each as SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.records.extras import require_extra
from ottla.spark.pipelines.running.progress import BatchSample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR: Final = "#2f6fb0"
_STYLE: Any = {
    "font.size": 9.5,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#edf0f2",
    "svg.fonttype": "none",
}

Value = Callable[[BatchSample], float | None]

#: Title, unit, value of each plot; one without any value is left out.
PLOTS: Final[tuple[tuple[str, str, Value], ...]] = (
    ("Throughput", "rows/s", lambda each: each.rows_per_second),
    ("Batch time", "seconds", lambda each: each.seconds),
    ("Lag in rows", "rows", lambda each: each.lag_rows),
    ("Lag in time", "seconds", lambda each: each.lag_s),
    ("Watermark behind the clock", "seconds", lambda each: each.watermark_behind_s),
    ("State", "rows", lambda each: each.state_rows or None),
)


def require_plots() -> None:
    """Raises MissingExtraError where plots cannot be drawn."""
    require_extra("the report", "demo", "matplotlib")


def draw(samples: Sequence[BatchSample]) -> list[str]:
    """All plots that have anything to show, as the texts of SVG elements. Raises MissingExtraError."""
    require_plots()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = []
    with matplotlib.rc_context(_STYLE):
        for title, unit, value in PLOTS:
            series = [(each.at_s - samples[0].at_s, value(each)) for each in samples]
            known = [(at, found) for at, found in series if found is not None]
            if not known:
                continue
            figure, axes = plt.subplots(figsize=(8.6, 3.6), layout="constrained")
            _plot(axes, title, unit, known)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
            plt.close(figure)
            drawn.append(text.getvalue()[text.getvalue().index("<svg") :])
    return drawn


def _plot(axes: Axes, title: str, unit: str, series: Sequence[tuple[float, float]]) -> None:
    axes.plot([at for at, _ in series], [found for _, found in series], color=_COLOUR, linewidth=1.6, marker=".")
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.set_xlabel("seconds since the first batch")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
