"""A plugin of pytest that notes which tests reach which lines: `pytest -p mutants.recording --lines FILE`."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to write; every worker writes a file of its own beside it."""
    parser.addoption("--lines", type=Path, required=True, help="where to note which tests reach which lines")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin, before the modules under test are imported."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        path = f"{config.getoption('--lines')}.{os.getpid()}"
        config.pluginmanager.register(Recorder(path, config.rootpath / "src"), "mutants-recorder")


class Recorder:
    """Traces the modules below `source`."""

    def __init__(self, path: str, source: Path) -> None:
        self._coverage = coverage.Coverage(data_file=path, config_file=False, include=[f"{source}/*"])
        self._coverage.start()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out tests that interrupt this process: coverage would keep the lock that it held at that moment."""
        left_out = [item for item in items if item.get_closest_marker("interrupts")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """What is reached from here on is reached by this test."""
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        """Write."""
        self._coverage.stop()
        self._coverage.save()
