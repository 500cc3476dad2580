"""A plugin for the pytest runs of foreign suites: which of their tests opened a connection to a test broker.

Asked for with `-p connection_report`; `OTTLA_CONNECTION_REPORT` names the file that it writes.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.embedded import EmbeddedBroker

REPORT_VARIABLE = "OTTLA_CONNECTION_REPORT"


class ConnectionReport:
    """Connections accepted by all brokers of this process, before and after each test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: list[EmbeddedBroker] = []
        #: Of brokers that have stopped.
        self._accepted = 0
        self._tests: dict[str, dict[str, Any]] = {}
        start, stop = EmbeddedBroker.start, EmbeddedBroker.stop

        def starting(broker: EmbeddedBroker) -> EmbeddedBroker:
            started = start(broker)
            self._running.append(broker)
            return started

        def stopping(broker: EmbeddedBroker) -> None:
            if broker in self._running:
                self._running.remove(broker)
                self._accepted += broker.server.connections.accepted
            stop(broker)

        EmbeddedBroker.start = starting  # type: ignore[method-assign]
        EmbeddedBroker.stop = stopping  # type: ignore[method-assign]

    def accepted(self) -> int:
        """Connections so far."""
        return self._accepted + sum(broker.server.connections.accepted for broker in self._running)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count what a test opens, its fixtures included."""
        before = self.accepted()
        test = self._tests.setdefault(item.nodeid, {"outcome": "passed", "message": ""})
        result = yield
        test["connections"] = self.accepted() - before
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of a test's phases."""
        if report.outcome != "passed":
            self._tests[report.nodeid] |= {"outcome": report.outcome, "message": report.longreprtext[-2000:]}

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        self._path.write_text(json.dumps(self._tests, indent=1))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how a sample is asked for."""
    parser.addoption("--sample-size", type=int, help="run only this many of the tests that would run")
    parser.addoption("--sample-seed", type=int, default=0, help="which")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a sample, in the suite's order."""
    size = config.getoption("--sample-size")
    # Deselected tests have gone by now, those that skip themselves have not.
    wanted = [item for item in items if not any(marker.args[:1] == (True,) for marker in item.iter_markers("skipif"))]
    if size is not None:
        chosen = set(random.Random(config.getoption("--sample-seed")).sample(wanted, size))
        items[:] = [item for item in items if item in chosen]


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.pluginmanager.register(ConnectionReport(Path(os.environ[REPORT_VARIABLE])), "ottla-connection-report")
