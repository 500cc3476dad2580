"""Servers and tools that tests run as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from support.cpu_clock import process_cpu_seconds
from support.waiting import POLL_INTERVAL_S

T = TypeVar("T")

TERMINATE_TIMEOUT_S = 60.0
OUTPUT_TAIL_LINES = 40


class ServerDied(AssertionError):
    """A server ended before it was ready; the message shows the end of its output."""


class ServerProcess:
    """A process with its output in files, so that nothing blocks on a full pipe and failures can show it."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.command = list(command)
        self.stdout_path = folder / f"{name}.out"
        self.stderr_path = folder / f"{name}.err"
        self.started_at = time.monotonic()
        with self.stdout_path.open("wb") as out, self.stderr_path.open("wb") as err:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self._process = psutil.Process(self._popen.pid)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    @property
    def stdout(self) -> str:
        """All it has written to standard output so far."""
        return self.stdout_path.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """All it has written to standard error so far."""
        return self.stderr_path.read_text(errors="replace")

    def output_tail(self) -> str:
        """The last lines of both outputs, for failure messages."""
        lines = (self.stdout + self.stderr).splitlines()
        return "\n".join(lines[-OUTPUT_TAIL_LINES:])

    def wait_until_ready(self, condition: Callable[[], T], timeout_s: float) -> T:
        """The first true value of `condition`; ServerDied when the process ends before, or in time is not ready."""
        deadline = time.monotonic() + timeout_s
        while True:
            running = self.running
            value = condition()
            if value:
                return value
            if not running:
                raise ServerDied(f"{self.name} ended with status {self.returncode}:\n{self.output_tail()}")
            if time.monotonic() >= deadline:
                self.kill9()
                raise ServerDied(f"{self.name} was not ready after {timeout_s:g} s:\n{self.output_tail()}")
            time.sleep(POLL_INTERVAL_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.running:
            self._popen.send_signal(number)

    def kill9(self) -> None:
        """Kill it as a power cut would, and reap it. Its page cache survives, as the machine does."""
        if self.running:
            self._popen.kill()
        self._popen.wait()

    def terminate(self, timeout_s: float = TERMINATE_TIMEOUT_S) -> int:
        """Ask it to stop (SIGTERM) and give its exit status; killed, with an AssertionError, when it does not."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def terminate_group(self, timeout_s: float = TERMINATE_TIMEOUT_S) -> None:
        """Ask the process and all that it started to stop (SIGTERM), and wait for its end; the group is gone then."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        self.wait(timeout_s)

    def wait(self, timeout_s: float = TERMINATE_TIMEOUT_S) -> int:
        """Its exit status once it has ended; killed, with an AssertionError, when that takes too long."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"{self.name} did not end within {timeout_s:g} s:\n{self.output_tail()}") from None

    def memory_bytes(self) -> int:
        """Resident memory now."""
        resident: int = self._process.memory_info().rss
        return resident

    def peak_memory_bytes(self) -> int:
        """The most resident memory it ever had (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def cpu_seconds(self) -> float:
        """Processor time used so far, of user and system together."""
        return process_cpu_seconds(self.pid)


def command_of(process: psutil.Process) -> list[str]:
    """The command line of a process; empty where it has ended."""
    try:
        command: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return command


def run_tool(
    command: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    timeout_s: float = 120.0,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and give its output; with `check`, a status other than 0 is an AssertionError.

    A program that takes longer than `timeout_s` is killed and is an AssertionError that shows what it wrote.
    """
    text = stdin.decode() if isinstance(stdin, bytes) else stdin
    try:
        done = subprocess.run(
            list(command),
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(
            f"{command[0]} took longer than {timeout_s:g} s: {late.stdout!r} {late.stderr!r}"
        ) from None
    if check and done.returncode != 0:
        raise AssertionError(
            f"{' '.join(command)[:500]} ended with status {done.returncode}:\n"
            f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done
