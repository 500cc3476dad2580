"""Brokers and group members as processes of their own: started, waited for, stopped, never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_MEMBER = Path(__file__).with_name("member.py")


class ProcessFailed(RuntimeError):
    """A process of the demo did not start or ended early; the message holds its last words."""


@dataclass(slots=True)
class BrokerProcess:
    """One `ottla serve`, with its data and its output in `folder`."""

    name: str
    folder: Path
    settings: Mapping[str, str]
    address: str = ""
    ready_s: float = 0.0
    _process: subprocess.Popen[str] | None = None
    _began: float = 0.0

    @property
    def log(self) -> Path:
        """The file of the broker's standard error."""
        return self.folder / "broker.log"

    def launch(self) -> None:
        """Start the broker on a free port; `wait_until_ready` gives its address."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "ottla", "serve", "--host", "127.0.0.1", "--port", "0"]
        command += ["--data", str(self.folder / "data")]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        self._began = time.monotonic()
        with self.log.open("ab") as errors:
            # In a session of its own: Ctrl-C in the terminal is ours to handle, in the right order.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )

    def wait_until_ready(self) -> None:
        """Wait for the broker. Raises ProcessFailed."""
        self.address = self._read_address()
        self.ready_s = time.monotonic() - self._began

    def check(self) -> None:
        """See that the broker runs. Raises ProcessFailed."""
        if self._process is not None and self._process.poll() is not None:
            raise ProcessFailed(
                f"the {self.name} broker ended with code {self._process.returncode}: {self._last_output()}"
            )

    def stop(self) -> None:
        """Stop the broker, by force if it does not stop of itself in time."""
        process, self._process = self._process, None
        if process is not None:
            _stop(process)

    def _read_address(self) -> str:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        watchdog = threading.Timer(START_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            for line in process.stdout:
                found = re.search(r"listening on (\S+:\d+)", line)
                if found:
                    return found.group(1)
        finally:
            watchdog.cancel()
        process.wait()
        raise ProcessFailed(f"the {self.name} broker did not start: {self._last_output()}")

    def _last_output(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace").strip()
        return text[-1_000:] or "it said nothing"


@dataclass(slots=True)
class Member:
    """One member of the ordinary consumer group: a process that reports its assignments, line by line.

    `history` holds (time in seconds since 1970, event, partitions); events are assigned, revoked, lost, closed.
    """

    name: str
    history: list[tuple[float, str, list[int]]] = field(default_factory=list)
    consumed: int = 0
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None

    def start(self, address: str, topic: str, group: str, settings: Mapping[str, str]) -> None:
        """Start the process."""
        own = {"bootstrap.servers": address, "group.id": group, "client.id": self.name, **settings}
        self._process = process = subprocess.Popen(
            [sys.executable, str(_MEMBER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps({"topic": topic, "settings": own, "parent": os.getpid()}) + "\n")
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether the process was started and not ended by us."""
        return self._process is not None

    def assigned_since(self, moment: float) -> bool:
        """Whether the member was assigned its partitions after `moment` (seconds since 1970)."""
        return any(event == "assigned" and report >= moment for report, event, _ in list(self.history))

    def leave(self) -> None:
        """Close the consumer, which leaves the group, and wait for the process."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, so that the group has to find out by itself."""
        self._end(signal.SIGKILL)
        self.history.append((time.time(), "killed", []))

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _stop(process, how)
        if self._reader is not None:
            self._reader.join(STOP_TIMEOUT_S)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                report: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            self.consumed = report["consumed"]
            self.history.append((report["time"], report["event"], report["partitions"]))


def _stop(process: subprocess.Popen[str], how: signal.Signals = signal.SIGTERM) -> None:
    process.send_signal(how)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
