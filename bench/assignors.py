"""Assignors: Kafka's own Java classes, warm, and ottla's, side by side in one run.

    ./run bench assignors [--quick] [--only range roundrobin sticky cooperative-sticky] [--write]

Both get the same subscriptions and have to give the same bytes; timed is the way from decoded subscriptions to encoded
assignments. See README.md beside this file for what each row means, and RESULTS.md for the last complete run.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that finds Java belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from contestants import NAMES, OTTLA, compile_package  # noqa: E402
from report import Figures, Goal  # noqa: E402
from session import Options, execute, say  # noqa: E402

from ottla.assign.assignor import (  # noqa: E402
    ClusterMetadata,
    GroupMetadata,
    MemberSubscription,
    RebalanceProtocol,
    SubscribedTopic,
)
from ottla.assign.consumer_protocol import (  # noqa: E402
    HIGHEST_VERSION,
    NO_GENERATION,
    Assignment,
    Malformed,
    decode_assignment,
    decode_subscription,
    encode_assignments,
    encode_subscription,
)
from ottla.assign.registry import BUILT_IN  # noqa: E402
from support.java import java_command  # noqa: E402

PROGRAM = Path(__file__).with_name("Assignors.java")
JVM = ("-Xmx4g",)
SEED = 5
GENERATION = 7
TWICE = Goal(2.0, at_least=False)
FIFTH = Goal(0.2, at_least=False)
STICKY = ("sticky", "cooperative-sticky")

Encoded = dict[str, bytes]


@dataclass(frozen=True)
class Shape:
    """A group; each member subscribes to that many of the topics, chosen by chance."""

    title: str
    topics: int
    partitions: int
    members: int
    subscribed: int
    goals: Mapping[str, Goal]
    """For the sticky assignors, by case."""


SHAPES = (
    Shape("500 topics of 2,000, 2,000 members", 500, 2_000, 2_000, 500, {"new": TWICE, "one gone": TWICE}),
    Shape("1 topic of 1,000,000, 2,000 members", 1, 1_000_000, 2_000, 1, {"new": TWICE, "one gone": TWICE}),
    Shape("100 topics of 100, 500 members with half of them", 100, 100, 500, 50, {"new": FIFTH}),
)
CASES = ("new", "one gone")


@dataclass(frozen=True)
class Plan:
    """How much is measured; the JVM warms up with each case before the first round."""

    rounds: int
    warm_up_runs: int


FULL = Plan(rounds=5, warm_up_runs=5)
QUICK = Plan(rounds=1, warm_up_runs=3)


class JavaAssignors:
    """The process that runs Kafka's classes; `folder` takes its files."""

    def __init__(self, folder: Path) -> None:
        self._group = folder / "group"
        self._result = folder / "result"
        self._process = subprocess.Popen(
            java_command(str(PROGRAM), options=JVM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def tell(self, topics: Mapping[str, int], sent: Encoded) -> None:
        """The group that the next runs are about."""
        parts = [struct.pack(">i", len(topics))]
        parts += [_text(name) + struct.pack(">i", count) for name, count in topics.items()]
        parts.append(struct.pack(">i", len(sent)))
        parts += [_text(member_id) + struct.pack(">i", len(data)) + data for member_id, data in sent.items()]
        self._group.write_bytes(b"".join(parts))

    def run(self, assignor: str) -> float:
        """Assign once; milliseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{assignor}\t{self._group}\t{self._result}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def result(self) -> Encoded:
        """What the last run gave each member."""
        data = self._result.read_bytes()
        (members,) = struct.unpack_from(">i", data)
        at, encoded = 4, {}
        for _ in range(members):
            member_id, at = _sized(data, at, ">H")
            encoded[member_id.decode()], at = _sized(data, at, ">i")
        return encoded

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class Bench:
    """One run: its figures, which may be those of a larger run, and the Java process that it has to stop."""

    def __init__(self, plan: Plan, assignors: frozenset[str], folder: Path, figures: Figures | None = None) -> None:
        self._plan = plan
        self._assignors = [name for name in BUILT_IN if name in assignors]
        compile_package()
        self._java = JavaAssignors(folder)
        self.figures = Figures() if figures is None else figures

    def run(self) -> None:
        """Measure everything."""
        for shape in SHAPES:
            for assignor in self._assignors:
                say(f"{assignor}, {shape.title}")
                self._measure(shape, assignor)

    def stop(self) -> None:
        """End the Java process."""
        self._java.stop()

    def _measure(self, shape: Shape, assignor: str) -> None:
        topics = {f"topic-{number:03d}": shape.partitions for number in range(shape.topics)}
        chance = random.Random(SEED)
        wanted = {
            f"member-{number:04d}": sorted(chance.sample(list(topics), shape.subscribed))
            for number in range(shape.members)
        }
        owned: Encoded = {}
        for case in CASES:
            sent = {
                member_id: _subscription(assignor, member_id, names, owned.get(member_id))
                for member_id, names in wanted.items()
            }
            goal = shape.goals.get(case) if assignor in STICKY else None
            measured = self._rounds(topics, sent, assignor)
            for name, ms in measured:
                self.figures.add("Assignors", f"{assignor}, {shape.title}, {case}", "ms", name, ms, goal)
            owned = self._java.result()
            wanted.pop(f"member-{shape.members // 2:04d}", None)

    def _rounds(self, topics: Mapping[str, int], sent: Encoded, assignor: str) -> list[tuple[str, float]]:
        """The milliseconds of each run, with whose it was."""
        self._java.tell(topics, sent)
        for _ in range(self._plan.warm_up_runs):
            self._java.run(assignor)
        measured: list[tuple[str, float]] = []
        encoded: Encoded = {}
        for number in range(self._plan.rounds):
            for name in NAMES if number % 2 else reversed(NAMES):
                if name == OTTLA:
                    ms, encoded = _assign(topics, sent, assignor)
                else:
                    ms = self._java.run(assignor)
                measured.append((name, ms))
        if encoded != self._java.result():
            raise AssertionError(f"{assignor} gave something else than Java's")
        return measured


def _assign(topics: Mapping[str, int], sent: Encoded, assignor: str) -> tuple[float, Encoded]:
    """Milliseconds from decoded subscriptions to encoded assignments, and those."""
    cluster = ClusterMetadata({name: SubscribedTopic(count) for name, count in topics.items()})
    subscriptions: dict[str, MemberSubscription] = {}
    for member_id, data in sent.items():
        read = decode_subscription(data)
        if isinstance(read, Malformed):
            raise AssertionError(read.message)
        subscriptions[member_id] = MemberSubscription(read)
    made = BUILT_IN[assignor]()
    begun = time.perf_counter()
    assigned = made.assign(cluster, subscriptions)
    encoded = encode_assignments(assigned)
    return (time.perf_counter() - begun) * 1e3, encoded


def _subscription(assignor: str, member_id: str, names: list[str], owned: bytes | None) -> bytes:
    """What a member sends: a new one, or (`owned`) one that has an assignment."""
    made, cooperative = BUILT_IN[assignor](), RebalanceProtocol.COOPERATIVE in BUILT_IN[assignor].supported_protocols
    assignment = Assignment(0, {}, None)
    if owned is not None:
        read = decode_assignment(owned)
        if isinstance(read, Malformed):
            raise AssertionError(read.message)
        assignment = read
        made.on_assignment(assignment, GroupMetadata("bench", GENERATION, member_id))
    return encode_subscription(
        names,
        made.subscription_user_data(names),
        HIGHEST_VERSION,
        owned_partitions=assignment.partitions if cooperative else {},
        generation_id=NO_GENERATION if owned is None else GENERATION,
    )


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _sized(data: bytes, at: int, size_format: str) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(size_format, data, at)
    begin = at + struct.calcsize(size_format)
    return data[begin : begin + size], begin + size


def _make(options: Options, folder: Path) -> Bench:
    return Bench(QUICK if options.quick else FULL, options.parts, folder)


if __name__ == "__main__":
    sys.exit(execute("assignors", __doc__, tuple(BUILT_IN), FULL.rounds, _make))
