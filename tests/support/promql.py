"""A reader of the part of PromQL that the alarms and the dashboard use: it knows the metrics that there are."""

from __future__ import annotations

import re
from typing import Any, Final

from ottla.broker.metrics.catalogue import BROKER_METRICS
from ottla.broker.metrics.registry import PROCESS_METRICS

NAMES: Final = frozenset(each.declaration.name for each in BROKER_METRICS) | frozenset(PROCESS_METRICS)
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
        #: The labels that it groups or matches by.
        self.labels: set[str] = set()

    def read(self) -> None:
        """The whole expression."""
        self._operators()
        assert not self._tokens, f"left over: {self._tokens}"
        assert self.labels <= ITS_LABELS.union(*(LABELS.get(each, frozenset()) for each in self.metrics))

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
            while self._sees("name", "on", "group_right"):
                self._tokens.pop(0)
                self._label_list()
            self._operand()

    def _label_list(self) -> None:
        assert self._next("mark") == "("
        while self._sees("name") or self._sees("mark", ","):
            kind, text = self._tokens.pop(0)
            if kind == "name":
                self.labels.add(text)
        assert self._next("mark") == ")"

    def _operand(self) -> None:
        if self._sees("number"):
            self._next("number")
        elif self._sees("mark", "("):
            self._in_brackets(self._operators)
        else:
            name = self._next("name")
            if name in AGGREGATES:
                if self._sees("name", "by"):
                    self._tokens.pop(0)
                    self._label_list()
                self._in_brackets(self._operators)
            elif name == "clamp_min":
                self._in_brackets(self._with_number)
            elif name in COUNTER_FUNCTIONS | GAUGE_FUNCTIONS:
                self._in_brackets(lambda: self._range(name))
            else:
                self._vector(name)

    def _in_brackets(self, what: Any) -> None:
        assert self._next("mark") == "("
        what()
        assert self._next("mark") == ")"

    def _with_number(self) -> None:
        self._operators()
        assert self._next("mark") == ","
        self._next("number")

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
