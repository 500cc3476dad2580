"""`ottla serve` with a watch on its event loop: which turns were long, in processor time.

    python bench/watched_broker.py REPORT [--stacks] serve …

A timer that is due every few milliseconds says how much processor time the loop's thread has used since it last ran:
one turn, and the little that others of the same round took. Each long one becomes a line of REPORT: the moment
(monotonic seconds), its processor time and its time by the clock, and that of the garbage collector in it, in
milliseconds. With `--stacks` the lines say what the loop was seen doing, which costs some time itself. Turns before
the ready line, and once nobody is served any more, do not count.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

TICK_S = 0.005
#: Shorter turns are not noted.
NOTED_MS = 20.0
SAMPLE_S = 0.002
FRAMES_SHOWN = 7


class Stacks:
    """What the loop was seen doing since `clear`, by the signal of a timer that counts processor time."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        self._seen[_shown(frame)] += 1

    def clear(self) -> list[tuple[str, int]]:
        """What was seen most, and how often."""
        seen, self._seen = self._seen, Counter()
        return seen.most_common(4)


def _shown(frame: FrameType | None) -> str:
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES_SHOWN:
        lines.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(lines)


class Watch:
    """The timer, and the report."""

    def __init__(self, report: Path, stacks: bool) -> None:
        self._report = report.open("a", buffering=1)
        self._stacks = Stacks() if stacks else None
        self._cpu_s = self._wall_s = 0.0
        self._collecting_s = self._collected_s = 0.0
        #: Whether the broker is ready, and does not close its logs yet.
        self.is_serving = False
        gc.callbacks.append(self._on_collection)

    def begin(self) -> None:
        """Start the timer."""
        self._loop = asyncio.get_running_loop()
        self._again()

    def ready(self) -> None:
        """Count turns from here on, and of the one that continues what is left."""
        self._cpu_s, self._wall_s, self.is_serving = time.thread_time(), time.monotonic(), True

    def closing(self) -> None:
        """Count no turn from here on, but for what the present one has used."""
        self._note()
        self.is_serving = False

    def _again(self) -> None:
        self._cpu_s, self._wall_s, self._collected_s = time.thread_time(), time.monotonic(), 0.0
        self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._note()
        self._again()

    def _note(self) -> None:
        cpu_ms = (time.thread_time() - self._cpu_s) * 1e3
        seen = self._stacks.clear() if self._stacks is not None else []
        if cpu_ms >= NOTED_MS and self.is_serving:
            now_s = time.monotonic()
            line = [now_s, cpu_ms, (now_s - self._wall_s) * 1e3, self._collected_s * 1e3, seen]
            self._report.write(json.dumps(line) + "\n")

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_s = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_s


def main() -> None:
    """Run the command line with a watch on the loop of `serve`."""
    report, *arguments = sys.argv[1:]
    stacks = arguments[0] == "--stacks"
    sys.argv = ["ottla", *arguments[1:]] if stacks else ["ottla", *arguments]
    from ottla.cli import entry, serve
    from ottla.storage.manager import LogManager

    run_in_loop, first_lines, close = serve.run_in_loop, serve._first_lines, LogManager.close

    def watched(work: Coroutine[Any, Any, int]) -> int:
        watch = Watch(Path(report), stacks)

        def ready(*arguments: Any) -> Iterator[str]:
            watch.ready()
            return first_lines(*arguments)

        def closing(logs: LogManager) -> int:
            watch.closing()
            return close(logs)

        setattr(serve, "_first_lines", ready)  # noqa: B010  what is patched has other types
        setattr(LogManager, "close", closing)  # noqa: B010

        async def both() -> int:
            watch.begin()
            return await work

        return run_in_loop(both())

    serve.run_in_loop = watched
    entry.main()


if __name__ == "__main__":
    main()
