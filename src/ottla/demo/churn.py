"""An ordinary consumer group whose members come and go while the pipelines run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ottla.demo.processes import Member

GROUP = "watchers"
SESSION_TIMEOUT_MS = 6_000
SETTLE_TIMEOUT_S = 20.0
SETTINGS = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "heartbeat.interval.ms": "500",
    "partition.assignment.strategy": "range",
}


class Churn:
    """Plays a fixed script of members that join, leave and die, each step once the group has settled."""

    def __init__(self, address: str, topic: str, pause_s: float, say: Callable[[str], None]) -> None:
        self.members: list[Member] = []
        self.failure: Exception | None = None
        self._address = address
        self._topic = topic
        self._pause_s = pause_s
        self._say = say
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)

    def start(self) -> None:
        """Begin the script."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the script runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the script where it is and all members with it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(SETTLE_TIMEOUT_S)
        for member in self.members:
            member.leave()

    def _run(self) -> None:
        try:
            self._play()
        except Exception as problem:  # The main thread raises it.
            self.failure = problem

    def _play(self) -> None:
        script: list[tuple[str, Callable[[], None]]] = [
            ("anna joins", lambda: self._join("anna")),
            ("ben joins", lambda: self._join("ben")),
            ("cleo joins", lambda: self._join("cleo")),
            ("ben leaves", lambda: self._member("ben").leave()),
            ("cleo is killed: the group is not notified", lambda: self._member("cleo").kill()),
            ("dora joins", lambda: self._join("dora")),
        ]
        for event, act in script:
            if self._stopping.is_set():
                return
            self._say(f"group {GROUP}: {event}")
            before = time.time()
            act()
            self._settle(before)
            self._stopping.wait(self._pause_s)

    def _join(self, name: str) -> None:
        member = Member(name)
        self.members.append(member)
        member.start(self._address, self._topic, GROUP, SETTINGS)
        if self._stopping.is_set():
            member.leave()  # `stop` may not have seen its process

    def _member(self, name: str) -> Member:
        return next(each for each in self.members if each.name == name)

    def _settle(self, since: float) -> None:
        """Wait until every living member was given partitions after `since`."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline and not self._stopping.is_set():
            living = [each for each in self.members if each.alive]
            if living and all(each.assigned_since(since) for each in living):
                return
            time.sleep(0.05)
