"""What tests of clusters share."""

from __future__ import annotations

import gc


def pytest_runtest_logfinish() -> None:
    """Collect what kafka-python leaves to the garbage: its sockets, which would be warned of in another test."""
    gc.collect()
