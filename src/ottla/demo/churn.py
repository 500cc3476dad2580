"""An ordinary consumer group whose members come and go while the pipelines run."""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.demo.background import Background
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


class Churn(Background):
    """Plays a fixed script of members that join, leave and die, each step once the group has settled."""

    def __init__(self, address: str, topic: str, pause_s: float, say: Callable[[str], None]) -> None:
        super().__init__("churn")
        self.members: list[Member] = []
        self._address = address
        self._topic = topic
        self._pause_s = pause_s
        self._say = say

    def stop(self) -> None:
        """End the script where it is and all members with it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(SETTLE_TIMEOUT_S)
        for member in self.members:
            member.leave()

    def work(self) -> None:
        """Play the script."""
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
