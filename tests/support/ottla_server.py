"""Our own broker, started the way a user starts it: `ottla serve` as a process."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.ports import LOOPBACK
from support.processes import TERMINATE_TIMEOUT_S, ServerProcess

START_TIMEOUT_S = 90.0

_LISTENING = re.compile(r"listening on (?P<host>\[[^\]]+\]|[^\s:,]+):(?P<port>\d+)")


class OttlaServer:
    """`python -m ottla serve` on a free port with its data in `folder/data`; `overrides` are settings by Kafka's names.

    `arguments` are added to the command line as they are; give `port` to keep one over restarts.
    """

    def __init__(
        self,
        folder: Path,
        *,
        data: Path | None = None,
        port: int = 0,
        overrides: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.overrides = dict(overrides or {})
        self.arguments = list(arguments)
        if "--zookeeper" in self.arguments:
            # One broker for the tests, though others may come.
            self.overrides.setdefault("offsets.topic.replication.factor", "1")
        self.env = dict(env or {})
        self.port = port
        #: All addresses of the ready line, in its order.
        self.addresses: list[tuple[str, int]] = []
        #: Seconds from the start of the process to its ready line.
        self.ready_after_s = 0.0
        self._server: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` address."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def log_dir(self) -> Path:
        """The folder that holds the partitions."""
        return self.data

    @property
    def server(self) -> ServerProcess:
        """The process; readings of memory and processor time are its methods."""
        assert self._server is not None, "ottla was not started"
        return self._server

    def command(self) -> list[str]:
        """The command line of the next start."""
        # Unbuffered, so that what it says is on disk when it is killed.
        command = [sys.executable, "-u", "-m", "ottla", "serve"]
        if "listeners" not in self.overrides:
            command += ["--host", LOOPBACK, "--port", str(self.port)]
        command += ["--data", str(self.data)]
        for name, value in self.overrides.items():
            command += ["-c", f"{name}={value}"]
        return command + self.arguments

    def start(self, timeout_s: float = START_TIMEOUT_S) -> OttlaServer:
        """Start it and wait for its ready line; a second start keeps data and port."""
        self._server = server = ServerProcess("ottla", self.command(), self.folder, self.env)
        self.addresses = server.wait_until_ready(self._addresses_when_ready, timeout_s)
        self.ready_after_s = time.monotonic() - server.started_at
        self.port = self.addresses[0][1]
        return self

    def _addresses_when_ready(self) -> list[tuple[str, int]]:
        # Whole lines only: the last one may still be on its way.
        complete = self.server.stdout.rpartition("\n")[0]
        return [(match["host"].strip("[]"), int(match["port"])) for match in _LISTENING.finditer(complete)]

    def restart(self) -> OttlaServer:
        """Start it again after it was stopped or killed."""
        assert not self.server.running, "stop it first"
        return self.start()

    def stop(self, timeout_s: float = TERMINATE_TIMEOUT_S) -> int:
        """Stop it cleanly (SIGTERM) and give its exit status; nothing if it does not run."""
        return self._server.terminate(timeout_s) if self._server is not None and self._server.running else 0

    def kill9(self) -> None:
        """Kill it without notice."""
        self.server.kill9()
