"""The garbage collector as in `ottla serve`, in a process of tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored_collector() -> Iterator[None]:
    """Undo at the end what `tune_collector` does: else cycles of later tests, and their sockets, stay for ever."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    try:
        yield
    finally:
        gc.callbacks[:] = callbacks
        gc.unfreeze()
        gc.set_threshold(*thresholds)
