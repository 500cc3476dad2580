"""What the members in Python share: the lines they write, and how they are asked to leave."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Wanted(NamedTuple):
    """The arguments of a member, as README.md says."""

    bootstrap: str
    group: str
    topic: str
    client_id: str
    assignors: list[str]
    session_ms: int


def wanted() -> Wanted:
    """The arguments of this process."""
    bootstrap, group, topic, client_id, assignors, session_ms = sys.argv[1:]
    return Wanted(bootstrap, group, topic, client_id, assignors.split(","), int(session_ms))


def report(event: str, **more: Any) -> None:
    """Write one line."""
    print(json.dumps({"event": event, "at": time.time(), **more}), flush=True)


def report_partitions(event: str, partitions: Iterable[Any]) -> None:
    """Write what happened to partitions, given as the client's own objects."""
    report(event, partitions=sorted(one.partition for one in partitions))


def when_asked_to_leave(leave: Callable[[], None]) -> None:
    """Call `leave`, in a thread of its own, at the end of standard input."""

    def wait() -> None:
        while sys.stdin.read(1):
            pass
        leave()

    threading.Thread(target=wait, daemon=True).start()
