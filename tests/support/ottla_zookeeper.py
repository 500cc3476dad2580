"""Our ZooKeeper server, started the way a user starts it: `ottla zookeeper` as a process."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.ports import LOOPBACK
from support.processes import TERMINATE_TIMEOUT_S, ServerProcess

START_TIMEOUT_S = 90.0
#: As `support.apache.ApacheZooKeeper` has it: sessions of 1 to 10 seconds are possible.
TICK_TIME_MS = 500

_LISTENING = re.compile(r"listening on [^\s:,]+:(\d+)")


class OttlaZooKeeper:
    """`python -m ottla zookeeper` on a free port with its data in `folder/data`; a second start keeps both."""

    def __init__(
        self,
        folder: Path,
        *,
        tick_time_ms: int = TICK_TIME_MS,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.tick_time_ms = tick_time_ms
        self.env = dict(env or {})
        self.arguments = list(arguments)
        self.data = folder / "data"
        self.port = 0
        self._server: ServerProcess | None = None

    @property
    def connect(self) -> str:
        """The `zookeeper.connect` address."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def server(self) -> ServerProcess:
        """The process."""
        assert self._server is not None, "it was not started"
        return self._server

    def start(self) -> OttlaZooKeeper:
        """Start it and wait for its ready line."""
        command = [sys.executable, "-u", "-m", "ottla", "zookeeper", "--host", LOOPBACK, "--port", str(self.port)]
        command += ["--data", str(self.data), "--tick-time-ms", str(self.tick_time_ms), *self.arguments]
        self._server = server = ServerProcess("ottla-zookeeper", command, self.folder, self.env)
        self.port = server.wait_until_ready(self._port_when_ready, START_TIMEOUT_S)
        return self

    def _port_when_ready(self) -> int:
        # Whole lines only: the last one may still be on its way.
        found = _LISTENING.search(self.server.stdout.rpartition("\n")[0])
        return int(found[1]) if found else 0

    def stop(self) -> int:
        """Stop it cleanly (SIGTERM) and give its exit status; nothing if it does not run."""
        if self._server is None or not self._server.running:
            return 0
        return self._server.terminate(TERMINATE_TIMEOUT_S)

    def kill9(self) -> None:
        """Kill it without notice."""
        self.server.kill9()
