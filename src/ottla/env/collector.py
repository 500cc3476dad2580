"""The garbage collector of a server process."""

from __future__ import annotations

import gc
import time
from typing import Final

#: Thresholds of the three generations. With Python's own (700, 10, 10) a request that makes some hundred thousand
#: objects starts full collections, each of which looks at all of them and at every topic made since the start: they
#: held the event loop for 50 to 600 ms. With these there is one in 18,000 objects that stay, and takes some 8 ms.
#: What is freed by its count of references, nearly everything, does not wait for it.
THRESHOLDS: Final = (1_000, 5, 2)
#: What is left after a full collection that took this long is passed over from then on, so that the next one looks
#: only at what is new. Cycles among it are not collected any more; topics form none.
FREEZE_AFTER_S: Final = 0.005
OLDEST_GENERATION: Final = 2


class _Freezer:
    """Takes what survives a long full collection out of the later ones, so that they do not grow with the topics."""

    def __init__(self) -> None:
        self._began_s = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST_GENERATION:
            return
        if phase == "start":
            self._began_s = time.thread_time()
        elif time.thread_time() - self._began_s >= FREEZE_AFTER_S:
            gc.freeze()


def tune_collector() -> None:
    """Have the collector pass over everything that exists now, and collect what comes later in short steps.

    What is garbage by now stays: to look for it among the logs of ten thousands of partitions takes 300 ms. The
    collection of what is left, nearly nothing, has Python forget how much there was: a quarter of that would have to be
    new before the next full one, which would take as long then.
    """
    gc.freeze()
    gc.collect()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_Freezer())


def pass_over_copy() -> None:
    """Have a server's collector pass over a large copy that has just been made, and lives for a moment.

    Its next collections would look at the whole of it. Where `tune_collector` was not called the process belongs to
    others, and nothing is done: their cycles would never be collected.
    """
    if _is_tuned():
        gc.freeze()


def collect_new() -> None:
    """Have a server's collector look at what is new, and pass over what is left of it: for work that frees very much.

    Python counts what is freed against what is made. While the logs of ten thousand partitions go no collection begins,
    and the next one would look at all that was made meanwhile. The collection is a full one, since what is passed over
    is not collected any more; after the first, nearly all that it looks at is new.
    """
    if _is_tuned():
        gc.collect()
        gc.freeze()


def _is_tuned() -> bool:
    return any(isinstance(each, _Freezer) for each in gc.callbacks)
