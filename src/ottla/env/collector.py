"""The garbage collector of a server process."""

from __future__ import annotations

import gc
from typing import Final

#: Thresholds of the three generations. With Python's own (700, 10, 10) a request that makes some hundred thousand
#: objects starts full collections, each of which looks at all of them and at every topic made since the start: they
#: held the event loop for 50 to 600 ms. With these there is one in two million objects, and no step takes above 10 ms
#: (`bench/large_requests.py`). What is freed by its count of references, nearly everything, does not wait for it.
THRESHOLDS: Final = (2_000, 10, 100)


def tune_collector() -> None:
    """Have the collector pass over everything that exists now, and collect what comes later in short steps."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
