"""The dashboard for Grafana: each query is PromQL about metrics and labels that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from support.dashboard import PANELS, Panel
from support.promql import ITS_LABELS, LABELS, NAMES, Expression

pytestmark = pytest.mark.spec("U3")

DASHBOARD: Final = Path(__file__).resolve().parents[2] / "docker" / "grafana-dashboard.json"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_queries_are_about_metrics_that_there_are(panel: Panel) -> None:
    for legend, query in panel.queries.items():
        expression = Expression(query)
        expression.read()
        assert expression.metrics, query
        assert expression.metrics <= NAMES
        labels = ITS_LABELS.union(*(LABELS.get(each, frozenset()) for each in expression.metrics))
        named = set(re.findall(r"\{\{(\w+)\}\}", legend))
        assert named <= labels
        if query.startswith(("sum", "max")):
            assert named == expression.labels & named, "an aggregate keeps no other label"


def test_no_two_panels_have_one_title_or_place() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["title"] for panel in panels}) == len(panels) == len(PANELS)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
