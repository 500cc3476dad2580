"""Members of one consumer group on clients of many makes, each a process (tests/interop/members/README.md)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.java import PROJECT, java_command

MEMBERS = PROJECT / "tests" / "interop" / "members"
LEAVE_TIMEOUT_S = 60.0
FOREVER = float("inf")


def built_members() -> Path | None:
    """The folder with what `./run test` makes for members in Go and Node (`OTTLA_MEMBERS`, else `.cache/members`)."""
    folder = Path(os.environ.get("OTTLA_MEMBERS") or PROJECT / ".cache" / "members")
    return folder if (folder / "franz-go").exists() and (folder / "node_modules" / "kafkajs").exists() else None


def _built() -> Path:
    folder = built_members()
    assert folder is not None, "the members in Go and Node are not there; mark the test needs_members"
    return folder


CLIENTS: dict[str, Callable[[], list[str]]] = {
    "java": lambda: java_command(str(MEMBERS / "Member.java")),
    "librdkafka": lambda: [sys.executable, str(MEMBERS / "librdkafka.py")],
    "ottla": lambda: [sys.executable, str(MEMBERS / "ottla_member.py")],
    "kafka-python": lambda: [sys.executable, str(MEMBERS / "kafka_python.py")],
    "aiokafka": lambda: [sys.executable, str(MEMBERS / "aio.py")],
    "franz-go": lambda: [str(_built() / "franz-go")],
    "kafkajs": lambda: ["node", str(_built() / "member.js")],
}
"""The command lines of the clients, without arguments."""

ENDS = {"revoked", "lost"}


@dataclass(frozen=True)
class Ownership:
    """A partition was a member's from `start_at` to `end_at`, seconds since the epoch."""

    member: str
    partition: int
    start_at: float
    end_at: float


class GroupMember:
    """One member as a process, which consumes and commits until it is told otherwise."""

    def __init__(
        self,
        client: str,
        name: str,
        folder: Path,
        *,
        bootstrap: str,
        group: str,
        topic: str,
        assignors: Sequence[str],
        session_ms: int,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.client = client
        self.name = name
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        #: When it was killed or stopped from outside: from then on it may own what others own too.
        self.gone_at = FOREVER
        arguments = [bootstrap, group, topic, name, ",".join(assignors), str(session_ms)]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._process = subprocess.Popen(
                CLIENTS[client]() + arguments, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True
            )

    def events(self) -> list[dict[str, Any]]:
        """What it has told so far."""
        whole_lines = self.out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole_lines.splitlines()]

    def owned(self) -> set[int]:
        """The partitions that it owns by its own account."""
        owned: set[int] = set()
        for event in self.events():
            if event["event"] == "assigned":
                owned |= set(event["partitions"])
            elif event["event"] in ENDS:
                owned -= set(event["partitions"])
        return owned

    def ownerships(self) -> list[Ownership]:
        """When it owned what; what it had when it was killed or stopped ends there."""
        found: list[Ownership] = []
        since: dict[int, float] = {}
        for event in self.events():
            if event["event"] == "assigned":
                since |= {partition: event["at"] for partition in event["partitions"] if partition not in since}
            elif event["event"] in ENDS:
                ended = [partition for partition in event["partitions"] if partition in since]
                found += [self._ownership(one, since.pop(one), event["at"]) for one in ended]
            elif event["event"] == "closed":
                found += [self._ownership(one, start_at, event["at"]) for one, start_at in since.items()]
                since = {}
        return found + [self._ownership(one, start_at, FOREVER) for one, start_at in since.items()]

    def _ownership(self, partition: int, start_at: float, end_at: float) -> Ownership:
        if start_at < self.gone_at:
            end_at = min(end_at, self.gone_at)
        return Ownership(self.name, partition, start_at, end_at)

    def consumed(self) -> list[tuple[int, int, int]]:
        """Partition, first and last offset of what it consumed, in order."""
        return [(e["partition"], e["first"], e["last"]) for e in self.events() if e["event"] == "records"]

    @property
    def running(self) -> bool:
        """Whether its process has not ended."""
        return self._process.poll() is None

    def leave(self) -> None:
        """Ask it to leave the group, and wait until it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"{self.name} did not leave within {LEAVE_TIMEOUT_S:g} s: {self.story()}") from None
        assert status == 0, f"{self.name} ended with status {status}: {self.story()}"

    def kill9(self) -> None:
        """Kill it, so that only its session's end tells the coordinator."""
        self.gone_at = min(self.gone_at, time.time())
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def freeze(self) -> None:
        """Stop its process as a long pause of the machine would."""
        self.gone_at = time.time()
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process continue."""
        self._process.send_signal(signal.SIGCONT)

    def story(self) -> str:
        """What it owned and when, the latest last, and the end of its log, for failures."""
        owned = [json.dumps(event) for event in self.events() if event["event"] != "records"]
        return "\n".join([f"{self.name}:", *owned[-60:], self.err.read_text()[-2000:]])


def double_owners(members: Iterable[GroupMember]) -> list[tuple[Ownership, Ownership]]:
    """Pairs of members that owned a partition at the same time."""
    by_partition: dict[int, list[Ownership]] = {}
    for member in members:
        for one in member.ownerships():
            by_partition.setdefault(one.partition, []).append(one)
    found = []
    for some in by_partition.values():
        some.sort(key=lambda one: (one.start_at, one.end_at))
        for index, one in enumerate(some):
            for other in some[index + 1 :]:
                if other.start_at >= one.end_at:
                    break
                if one.member != other.member:
                    found.append((one, other))
    return found


def skipped(members: Iterable[GroupMember], ends: dict[int, int]) -> dict[int, list[int]]:
    """Offsets below the ends of the partitions that no member consumed."""
    seen: dict[int, set[int]] = {partition: set() for partition in ends}
    for member in members:
        for partition, first, last in member.consumed():
            seen[partition].update(range(first, last + 1))
    missing = {partition: sorted(set(range(end)) - seen[partition]) for partition, end in ends.items()}
    return {partition: offsets for partition, offsets in missing.items() if offsets}


def forgotten_commits(members: Iterable[GroupMember]) -> list[str]:
    """Where a member that got a partition began below an offset that had been committed before."""
    commits: dict[int, list[tuple[float, int]]] = {}
    stories = {member.name: member.events() for member in members}
    for events in stories.values():
        for at, partition, end in _commits(events):
            commits.setdefault(partition, []).append((at, end))
    found = []
    for name, events in stories.items():
        since: dict[int, float] = {}
        for event in events:
            if event["event"] == "assigned":
                since |= dict.fromkeys(event["partitions"], event["at"])
            elif event["event"] == "records" and event["partition"] in since:
                start_at, partition = since.pop(event["partition"]), event["partition"]
                committed = max((end for at, end in commits.get(partition, ()) if at <= start_at), default=0)
                if event["first"] < committed:
                    found.append(f"{name} began partition {partition} at {event['first']}, committed was {committed}")
    return found


def _commits(events: Sequence[dict[str, Any]]) -> Iterator[tuple[float, int, int]]:
    """When a commit had surely ended, its partition and offset: each round of records is committed before the next."""
    latest: dict[int, int] = {}
    for event in events:
        if event["event"] == "commit_failed":
            latest = {}
            continue
        if event["event"] != "records" or event["partition"] in latest:
            yield from ((event["at"], partition, end) for partition, end in latest.items())
            latest = {}
        if event["event"] == "records":
            latest[event["partition"]] = event["last"] + 1
