"""The producer processes of a run: started, driven together, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from ottla.profiles.producing import GO, ProducerResult, ProducerTask
from ottla.profiles.workload import ProfileError

START_TIMEOUT_S: Final = 120.0
#: The longest line that a process may write: a result with all its ranges.
LINE_BYTES: Final = 4 * 1024 * 1024
LAST_OUTPUT_CHARS: Final = 500


class ProducerProcesses:
    """Producer processes. `stop` has to be called in the end."""

    def __init__(self) -> None:
        self._processes: list[asyncio.subprocess.Process] = []
        self._acknowledged: dict[int, int] = {}

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far, by the last reports."""
        return sum(self._acknowledged.values())

    async def start(self, tasks: Sequence[ProducerTask]) -> None:
        """Start a process for each task, and wait until all are ready. Raises ProfileError."""
        for task in tasks:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ottla.profiles.producing",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_BYTES,
                # Ctrl-C at the terminal is for the parent.
                start_new_session=True,
            )
            self._processes.append(process)
            self._write(process, json.dumps(asdict(task)))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await asyncio.gather(*(self._until(each, "ready") for each in self._processes))
        except TimeoutError:
            raise ProfileError(f"the producers are not ready after {START_TIMEOUT_S:g} s") from None

    async def produce(self, halfway: Callable[[], None], is_half: Callable[[int], bool]) -> list[ProducerResult]:
        """Let all begin, and return their results.

        `halfway` is called once, when `is_half` says so of the number of records acknowledged. Raises ProfileError.
        """
        waiting = [halfway]

        def progressed() -> None:
            if waiting and is_half(self.acknowledged):
                waiting.pop()()

        for process in self._processes:
            self._write(process, GO)
        rows = await asyncio.gather(*(self._until(each, "result", progressed) for each in self._processes))
        return [ProducerResult.from_row(row["result"]) for row in rows]

    async def stop(self) -> None:
        """End what still runs."""
        for process in self._processes:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    # Not by its own method, which would wait for it in the place of asyncio's watcher.
                    os.kill(process.pid, signal.SIGKILL)
        for process in self._processes:
            # Reads what is left in its pipes, too, so that they are closed.
            await process.communicate()
        self._processes.clear()

    @staticmethod
    def _write(process: asyncio.subprocess.Process, line: str) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):  # it has ended, which its reader finds out
            process.stdin.write(line.encode() + b"\n")

    async def _until(
        self, process: asyncio.subprocess.Process, wanted: str, progressed: Callable[[], None] | None = None
    ) -> Mapping[str, Any]:
        """The next row of this kind. Raises ProfileError where the process fails or ends."""
        assert process.stdout is not None
        async for line in process.stdout:
            row: Mapping[str, Any] = json.loads(line)
            if "failed" in row:
                raise ProfileError(f"a producer failed: {row['failed']}")
            if wanted in row:
                return row
            if "acknowledged" in row:
                self._acknowledged[process.pid] = row["acknowledged"]
            if progressed is not None:
                progressed()
        assert process.stderr is not None
        said = (await process.stderr.read()).decode(errors="replace").strip()
        raise ProfileError(f"a producer process ended too early: {said[-LAST_OUTPUT_CHARS:] or 'it wrote nothing'}")
