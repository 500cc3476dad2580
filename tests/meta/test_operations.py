"""The guide for running a cluster: a section for every finding and every alarm, whose rules Prometheus can read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from ottla.ops.health import brokers, partitions
from ottla.ops.health.findings import HealthKind
from support.documents import commands
from support.promql import ITS_LABELS, ITS_OWN, LABELS, NAMES, Expression

pytestmark = pytest.mark.spec("R1")

PROJECT: Final = Path(__file__).resolve().parents[2]
GUIDE: Final = PROJECT / "docs" / "operations.md"
RULES: Final = PROJECT / "docker" / "prometheus-rules.yml"


def alarms() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert group["name"] == "ottla"
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def sections() -> set[str]:
    return set(re.findall(r"^### (\S+)$", GUIDE.read_text(), re.MULTILINE))


def test_every_finding_has_its_section() -> None:
    assert {kind.slug for kind in HealthKind} <= sections()


def test_every_alarm_leads_to_its_section_and_every_section_is_of_something() -> None:
    linked = {each["annotations"]["runbook"].removeprefix("docs/operations.md#") for each in alarms()}
    assert linked <= sections()
    assert sections() == linked | {kind.slug for kind in HealthKind}


@pytest.mark.parametrize("alarm", alarms(), ids=lambda each: each["alert"])
def test_an_alarm_is_a_rule_of_prometheus_about_metrics_that_there_are(alarm: dict[str, Any]) -> None:
    assert set(alarm) - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smh]", alarm.get("for", "0s"))
    assert alarm["labels"]["severity"] in ("critical", "warning")
    expression = Expression(alarm["expr"])
    expression.read()
    assert expression.metrics <= NAMES | ITS_OWN
    assert expression.metrics
    summary = alarm["annotations"]["summary"]
    labels = set().union(*(LABELS.get(each, frozenset()) for each in expression.metrics)) | ITS_LABELS
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= labels
    assert summary.count("{{") == summary.count("}}")


def test_alarms_are_as_bad_as_the_findings_that_they_lead_to() -> None:
    levels = {kind.slug: kind.level.name.lower() for kind in HealthKind}
    for alarm in alarms():
        slug = alarm["annotations"]["runbook"].partition("#")[2]
        assert alarm["labels"]["severity"] == levels.get(slug, "warning"), alarm["alert"]


@pytest.mark.parametrize(
    "wrong",
    [
        "sum(up",
        "increase(up)",
        "rate(ottla_event_loop_lag_seconds[5m])",
        "up{job=ottla}",
        "up == == 1",
        "up)",
        "sum by (up",
    ],
)
def test_what_is_no_expression_is_refused(wrong: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        Expression(wrong).read()


def test_commands_of_cures_and_of_the_guide_exist() -> None:
    """Every `ottla …` that a cure or the guide names is a command, with options that it has."""
    texts = [GUIDE.read_text(), *(Path(str(each.__file__)).read_text() for each in (brokers, partitions))]
    known = commands()
    for text in texts:
        for shown in re.findall(r"`(ottla [^`\"]+)", text):
            words = shown.split()[1:]
            name = next((" ".join(words[:length]) for length in (2, 1) if " ".join(words[:length]) in known), None)
            assert name is not None, shown
            options = {option for each in known[name].params for option in each.opts}
            assert {word.rstrip(",.") for word in words if word.startswith("--")} <= options, shown
