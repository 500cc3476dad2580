"""The guide for running a cluster: a section for every finding and every alarm, whose rules Prometheus can read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from ottla.broker.metrics.catalogue import BROKER_METRICS
from ottla.ops.health import brokers, partitions
from ottla.ops.health.findings import HealthKind
from support.documents import commands

pytestmark = pytest.mark.spec("R1")

PROJECT: Final = Path(__file__).resolve().parents[2]
GUIDE: Final = PROJECT / "docs" / "operations.md"
RULES: Final = PROJECT / "docker" / "prometheus-rules.yml"
NAMES: Final = frozenset(each.declaration.name for each in BROKER_METRICS)
LABELS: Final = {each.declaration.name: frozenset(each.declaration.labels) for each in BROKER_METRICS}
#: What Prometheus adds itself: whether a scrape succeeded, and where it went.
ITS_OWN: Final = frozenset(("up",))
ITS_LABELS: Final = frozenset(("instance", "job"))
COUNTER_FUNCTIONS: Final = frozenset(("increase", "rate"))
GAUGE_FUNCTIONS: Final = frozenset(("changes", "predict_linear"))
AGGREGATES: Final = frozenset(("sum", "max"))
OPERATORS: Final = frozenset(("and", "or", "unless"))
TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<number>\d+(?:\.\d+)?) | (?P<name>[a-zA-Z_:][\w:]*) | (?P<labels>\{\w+="[^"]*"\})
    | (?P<range>\[\d+[smhd]\]) | (?P<compare>==|!=|<=|>=|<|>) | (?P<arithmetic>[-+*/]) | (?P<mark>[(),])
    )""",
    re.VERBOSE,
)


def alarms() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert group["name"] == "ottla"
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def sections() -> set[str]:
    return set(re.findall(r"^### (\S+)$", GUIDE.read_text(), re.MULTILINE))


class Expression:
    """A reader of the part of PromQL that the rules use; AssertionError where an expression is not of it.

    Of each vector it knows whether it is a range, since functions take ranges and operators do not.
    """

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            assert found is not None, f"not PromQL: {text[at:]!r}"
            kind = found.lastgroup
            assert kind is not None
            self._tokens.append((kind, found[kind]))
            at = found.end()
        self.metrics: set[str] = set()

    def read(self) -> None:
        """The whole expression."""
        self._operators()
        assert not self._tokens, f"left over: {self._tokens}"

    def _next(self, *kinds: str) -> str:
        kind, text = self._tokens.pop(0)
        assert kind in kinds, f"{text!r} where one of {kinds} was expected"
        return text

    def _sees(self, kind: str, *texts: str) -> bool:
        return bool(self._tokens) and self._tokens[0][0] == kind and (not texts or self._tokens[0][1] in texts)

    def _operators(self) -> None:
        self._operand()
        while self._sees("compare") or self._sees("arithmetic") or self._sees("name", *OPERATORS):
            self._tokens.pop(0)
            self._operand()

    def _operand(self) -> None:
        if self._sees("number"):
            self._next("number")
        elif self._sees("mark", "("):
            self._in_brackets(self._operators)
        else:
            name = self._next("name")
            if name in AGGREGATES:
                self._in_brackets(self._operators)
            elif name in COUNTER_FUNCTIONS | GAUGE_FUNCTIONS:
                self._in_brackets(lambda: self._range(name))
            else:
                self._vector(name)

    def _in_brackets(self, what: Any) -> None:
        assert self._next("mark") == "("
        what()
        assert self._next("mark") == ")"

    def _range(self, function: str) -> None:
        metric = self._next("name")
        self._vector(metric)
        self._next("range")
        assert metric.endswith("_total") == (function in COUNTER_FUNCTIONS), f"{function} of {metric}"
        if function == "predict_linear":
            assert self._next("mark") == ","
            self._next("number")

    def _vector(self, metric: str) -> None:
        self.metrics.add(metric)
        if self._sees("labels"):
            (label,) = re.findall(r"(\w+)=", self._next("labels"))
            assert label in LABELS.get(metric, frozenset()) | ITS_LABELS


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
    "wrong", ["sum(up", "increase(up)", "rate(ottla_event_loop_lag_seconds[5m])", "up{job=ottla}", "up == == 1", "up)"]
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
