"""The picture and the page, of little data and of none."""

from __future__ import annotations

import xml.etree.ElementTree
from pathlib import Path

import pytest

from ottla.demo.checks import DemoCheck
from ottla.demo.feed import Event, Feed
from ottla.demo.page import write_page
from ottla.demo.plots import draw_picture, draw_svg, plots
from ottla.demo.processes import Member
from ottla.demo.rebalances import ObservedRebalance
from ottla.demo.results import Results, Sample


def _results(events: list[Event], **settings: str) -> Results:
    feed = Feed("<x & y>", events, {"a": "INT"}, **settings)
    results = Results(feed, 4, began_at=1_000.0, broker_ready_s=0.2, spark_ready_s=5.0, total_s=30.0)
    results.online = feed.totals()
    results.samples = [
        Sample(0.0, {"loaded": 0, "online": 0}),
        Sample(1.5, {"loaded": len(events), "online": 0}),
        Sample(2.0, {"loaded": len(events), "online": len(events)}),
    ]
    results.checks = [DemoCheck("all there", True, "1 < 2"), DemoCheck("equal", True, "yes")]
    results.members = [
        Member("anna", [(1_000.5, "assigned", [0, 1, 2, 3]), (1_001.0, "revoked", []), (1_001.1, "assigned", [0])]),
        Member("ben", [(1_001.1, "assigned", [1, 2, 3]), (1_001.5, "killed", [])]),
        Member("cleo"),
    ]
    results.rebalances = [ObservedRebalance("g", 1, "stable", 1_000_400, 5, ("anna <b>joined</b>",), 1, 0, 0, 3)]
    return results


def _flights(count: int) -> list[Event]:
    return [
        Event(number * 7_200_000, b"k", b"{}", f"c{number % 30}", None if number % 9 == 0 else float(number), "JFK")
        for number in range(count)
    ]


@pytest.mark.slow
def test_the_page_holds_everything_and_escapes_it(tmp_path: Path) -> None:
    results = _results(_flights(200), group_field="carrier", measure_field="delay", place_field="origin")
    write_page(results, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert "&lt;x &amp; y&gt;" in page
    assert "<x & y>" not in page
    assert "anna &lt;b&gt;joined&lt;/b&gt;" in page
    assert "1 &lt; 2" in page
    assert "Every check passed." in page
    assert "loaded in" in page
    results.checks.append(DemoCheck("bad", False, "no"))
    write_page(results, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Some checks failed." in page
    assert "✗ failed" in page


@pytest.mark.slow
def test_the_picture_is_a_png(tmp_path: Path) -> None:
    draw_picture(_results(_flights(200)), tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in plots()])
@pytest.mark.parametrize("count", [1, 40])
def test_each_plot_is_svg_also_of_hardly_any_data(name: str, count: int) -> None:
    results = _results(_flights(count))
    if count == 1:
        results.online = {}
        results.samples = []
        results.members = []
        results.rebalances = []
    drawn = draw_svg(dict(plots())[name], results)
    assert xml.etree.ElementTree.fromstring(drawn).tag.endswith("svg")


def test_a_result_without_checks_has_not_passed() -> None:
    results = _results(_flights(3))
    assert results.passed
    assert results.seconds("loaded") == 1.5
    assert results.seconds("mirror") is None
    results.checks = []
    assert not results.passed
