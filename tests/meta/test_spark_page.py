"""What docs/spark.md lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.spark.listening.prometheus import COUNTERS, METRICS, PREFIX

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_every_metric_of_queries_is_on_the_page_with_its_labels() -> None:
    rows = re.findall(r"^\| (`ottla_spark_.+?) \| (.+?) \|", PAGE.read_text(), re.MULTILINE)
    listed = {
        metric: tuple(re.findall(r"`(\w+)`", labels))
        for metrics, labels in rows
        for metric in re.findall(r"`(\w+)`", metrics)
    }
    assert listed == {
        f"{PREFIX}{name}{'_total' if name in COUNTERS else ''}": labels for name, (labels, _) in METRICS.items()
    }
