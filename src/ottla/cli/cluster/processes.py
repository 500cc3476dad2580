"""The processes of `ottla cluster`: started, awaited, watched, stopped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final

from ottla.cli.cluster.plan import PlannedProcess

START_TIMEOUT_S: Final = 180.0
"""A process that is not ready so long after its start is taken for failed; recovery of logs may take long."""
STOP_TIMEOUT_S: Final = 60.0
"""A process that has not stopped so long after it was asked to is killed."""
POLL_S: Final = 0.05
LAST_LINES: Final = 5
"""Lines of a process's log that are shown where it ended too early."""
LOG_TAIL_BYTES: Final = 16_384

_LISTENING = re.compile(r"listening on ((?:\[[^\]]+\]|[^\s:,]+):\d+)")
_STARTED = re.compile(r"^ottla \S+ ready in ", re.MULTILINE)


class StartFailed(Exception):
    """A process ended before it was ready, or was not ready in time; the message shows what it said."""


@dataclass(slots=True)
class ClusterProcess:
    """A process of the cluster. `address` is known once it is ready, `exit_status` once it has ended."""

    plan: PlannedProcess
    process: asyncio.subprocess.Process
    log_start: int
    address: str | None = None

    @property
    def exit_status(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return self.process.returncode

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    def said(self) -> str:
        """Read its output since its start: the last part, where that is long."""
        try:
            with open(self.plan.log_path, "rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self.log_start, end - LOG_TAIL_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def ending(self) -> str:
        """How it ended, in words."""
        status = self.process.returncode
        if status is None:
            return "running"
        if status < 0:
            try:
                return f"was killed by {signal.Signals(-status).name}"
            except ValueError:
                return f"was killed by signal {-status}"
        return f"ended with exit status {status}"


async def start_process(plan: PlannedProcess) -> ClusterProcess:
    """Start it, its output appended to its log. Raises OSError."""
    with _open_log(plan.log_path) as log:
        log_start = log.seek(0, os.SEEK_END)
        process = await asyncio.create_subprocess_exec(
            *plan.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            # Ctrl-C at the terminal is for the parent, which stops the processes in their order.
            start_new_session=True,
        )
    return ClusterProcess(plan, process, log_start)


def _open_log(path: str) -> BinaryIO:
    return open(path, "ab")


async def wait_until_ready(member: ClusterProcess) -> str:
    """The address it listens on, once it is ready. Raises `StartFailed`."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        is_running = member.is_running
        said = member.said()
        found = _LISTENING.search(said) if _STARTED.search(said) else None
        # Whole lines only: the last one may still be on its way.
        if found is not None and "\n" in said[found.end() :]:
            member.address = found[1]
            return found[1]
        if not is_running:
            raise StartFailed(f"{member.plan.name} did not start: it {member.ending()}. {_last_words(member)}")
        if time.monotonic() > deadline:
            raise StartFailed(f"{member.plan.name} is not ready after {START_TIMEOUT_S:g} s. {_last_words(member)}")
        await asyncio.sleep(POLL_S)


def _last_words(member: ClusterProcess) -> str:
    lines = [line.strip() for line in member.said().splitlines() if line.strip()][-LAST_LINES:]
    shown = " | ".join(lines) if lines else "it wrote nothing"
    return f"Its log ({member.plan.log_path}): {shown}"


async def stop_processes(members: Iterable[ClusterProcess], hurry: asyncio.Event) -> list[str]:
    """Stop them all at once, as by SIGTERM, and wait; returns the names of those that had to be killed.

    They are killed after `STOP_TIMEOUT_S`, or when `hurry` is set.
    """
    running = [each for each in members if each.is_running]
    for each in running:
        send_signal(each, signal.SIGTERM)
    waits = {asyncio.ensure_future(each.process.wait()) for each in running}
    hurrying = asyncio.ensure_future(hurry.wait())
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while waits and not hurry.is_set() and (left_s := deadline - time.monotonic()) > 0:
        done, _ = await asyncio.wait({*waits, hurrying}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        waits -= done
    hurrying.cancel()
    killed = [each for each in running if each.is_running]
    for each in killed:
        send_signal(each, signal.SIGKILL)
    if waits:
        await asyncio.wait(waits)
    return [each.plan.name for each in killed]


def send_signal(member: ClusterProcess, number: signal.Signals) -> None:
    """Send it a signal, unless it has ended.

    Not by the subprocess's own method: that waits for a process that has just ended, whose exit status is then lost to
    the watcher of asyncio, which complains.
    """
    if member.is_running:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(member.process.pid, number)
