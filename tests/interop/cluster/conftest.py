"""What tests of clusters share."""

from __future__ import annotations

import gc
import warnings


def pytest_runtest_logfinish() -> None:
    """Collect what kafka-python leaves to the garbage: its sockets, which would be warned of in another test."""
    with warnings.catch_warnings():
        # A warning that is an error here would be reported in the setup of the next test.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
