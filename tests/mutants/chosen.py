"""A plugin of pytest that runs the tests of a list, in its order: `pytest -p mutants.chosen --chosen FILE FILES…`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the list is."""
    parser.addoption("--chosen", type=Path, required=True, help="a list of node ids (JSON)")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out."""
    place = {test: at for at, test in enumerate(json.loads(config.getoption("--chosen").read_text()))}
    items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])
