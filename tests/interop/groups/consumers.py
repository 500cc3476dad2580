"""Apache Kafka's own consumers, many in one process (`Consumers.java`), with what their listeners were told."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from support.java import java_command, older_client_command
from support.waiting import wait_until

PROGRAM = Path(__file__).with_name("Consumers.java")
END_TIMEOUT_S = 90.0
#: The version of the clients among Apache Kafka's own jars.
CURRENT = "3.9.1"


class Consumers:
    """One process with consumers of one version of the Java client."""

    def __init__(self, version: str, folder: Path) -> None:
        self.out = folder / f"consumers-{version}.out"
        self.err = folder / f"consumers-{version}.err"
        program = str(PROGRAM)
        command = java_command(program) if version == CURRENT else older_client_command(version, program)
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=err, text=True, start_new_session=True
            )

    def _tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def start(self, name: str, bootstrap: str, group: str, topic: str) -> None:
        """Another consumer."""
        self._tell("start", name, bootstrap, group, topic)

    def close(self, *names: str) -> None:
        """Let consumers leave; wait until they have."""
        for name in names:
            self._tell("close", name)
        for name in names:
            wait_until(lambda name=name: self.events(name, "closed"), lambda name=name: f"the end of {name}")

    def events(self, name: str, *kinds: str) -> list[Any]:
        """What a consumer was told, in order: (kind, partitions); of some kinds only, if they are named."""
        assert self._process.poll() is None, self.err.read_text()[-3000:]
        whole_lines = self.out.read_text().rpartition("\n")[0]
        told = [json.loads(line) for line in whole_lines.splitlines()]
        return [
            (one["event"], one.get("partitions"))
            for one in told
            if one["consumer"] == name and (not kinds or one["event"] in kinds)
        ]

    def owned(self, name: str) -> list[int] | None:
        """What it has by its own account; None before its first assignment and while it has given up everything."""
        told = self.events(name, "assigned", "revoked", "lost")
        return told[-1][1] if told and told[-1][0] == "assigned" else None

    def end(self) -> None:
        """Let all leave."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the consumers did not end: {self.err.read_text()[-3000:]}") from None
