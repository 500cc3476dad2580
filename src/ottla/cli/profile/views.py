"""Figures of a profile as a table."""

from __future__ import annotations

from ottla.cli.terminal import Cell, Column, Style, Terminal, count, duration
from ottla.profiles.figures import ProfileFigures

_COLUMNS = (Column("figure"), Column("", is_number=True), Column(""))
_SMALLEST_SECONDS_MS = 10_000.0


def show_figures(terminal: Terminal, figures: ProfileFigures) -> None:
    """Write the table, and below it what was broken."""
    terminal.line(
        f"{figures.profile}: {count(figures.partitions, 'partition')} with "
        f"{count(figures.replication_factor, 'replica')}, {count(figures.producers, 'producer')}, "
        f"{figures.record_bytes:,}-byte values"
    )
    rows = [
        ("acknowledged", f"{figures.acknowledged:,}", f"in {figures.seconds:.1f} s"),
        ("records/s", f"{figures.records_per_s:,.0f}", f"{figures.of_mark:.0%} of a million"),
        ("MB/s", f"{figures.mb_per_s:,.1f}", "of values"),
        ("latency p50", _latency(figures.p50_ms), "from the record's making to its acknowledgement"),
        ("latency p99", _latency(figures.p99_ms), ""),
        ("latency p99.9", _latency(figures.p999_ms), ""),
        ("CPU of the brokers", _seconds(figures.brokers_cpu_s), "with their ZooKeeper"),
        ("CPU of the producers", _seconds(figures.producers_cpu_s), ""),
        ("generator alone, records/s", f"{figures.alone_per_s:,.0f}", "of a core"),
        ("read back", f"{figures.read:,}", f"in {figures.check_s:.1f} s"),
    ]
    counts = {
        "lost": figures.lost,
        "twice": figures.doubled,
        "out of order": figures.reordered,
        "not acknowledged": figures.not_acknowledged,
        "sent by nobody": figures.strange,
    }
    cells: list[tuple[str | Cell, ...]] = [(name, value, note) for name, value, note in rows if value != "-"]
    cells += [(name, Cell(f"{many:,}", Style.BAD if many else Style.GOOD), "") for name, many in counts.items()]
    terminal.table(_COLUMNS, cells, headings=False)
    for error in figures.errors:
        terminal.line(f"  an error of the producers: {error}")
    if not figures.broken:
        terminal.line(terminal.paint("kept: all that the profile promises", Style.GOOD))
    for each in figures.broken:
        terminal.line(terminal.paint(f"broken: {each}", Style.BAD))


def _latency(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:,.1f} ms" if ms < _SMALLEST_SECONDS_MS else duration(ms)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f} s"
