"""A client under measurement: a process of its own that gets one job after another."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from client_programs.meter import Job, Measured

WORKER = Path(__file__).with_name("client_worker.py")
#: A load that takes longer has hung.
JOB_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0


class ClientFailed(Exception):
    """A client raised, hung or died; the message tells what is known."""


class ClientProcess:
    """`with ClientProcess("aiokafka") as client: client.measure(job)`."""

    def __init__(self, client: str, env: Mapping[str, str] | None = None) -> None:
        self._client = client
        # What a client logs goes to the terminal, should it have something to say.
        self._popen = subprocess.Popen(
            [sys.executable, str(WORKER), client],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict(env or {}),
        )

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def measure(self, job: Job) -> Measured:
        """Have a job done."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        what = f"{self._client}, {job.load}, {job.value_bytes} B"
        self._popen.stdin.write(json.dumps(dataclasses.asdict(job)).encode() + b"\n")
        self._popen.stdin.flush()
        # One line comes for each job, so that nothing of another is waiting in the buffer of the pipe.
        if not select.select([self._popen.stdout], [], [], JOB_TIMEOUT_S)[0]:
            raise ClientFailed(f"{what}: no end after {JOB_TIMEOUT_S:g} s")
        line = self._popen.stdout.readline()
        if not line:
            raise ClientFailed(f"{what}: the process ended with {self._popen.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClientFailed(f"{what}: {answer['error']}")
        return Measured(**answer)

    def stop(self) -> None:
        """End the process, by force if need be."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._popen.stdout.close()
