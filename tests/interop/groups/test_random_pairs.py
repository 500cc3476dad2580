"""Groups beside Apache Kafka's coordinator on paths that nobody thought of: commands drawn by chance, by a seed.

What is known to differ is not drawn: requests that are sent again while they wait, and leaders who leave while several
members stay (Apache Kafka's next leader is the first of a hash table).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from interop.groups.brokers import SETTINGS, GroupBrokers
from interop.groups.player import PATIENCE_S, TOPICS, Client, Player, connector
from interop.raw import RawConnection
from interop.wire_json import Definitions

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow]

#: A walk ends when this many commands were drawn; many come to rest before, waiting for a member that was lost.
STEPS = 80
CLIENTS = ["a", "b", "c", "d"]
#: The instances of static members, one of these by the seed.
STATIC: list[dict[str, str]] = [{"d": "i1"}, {"c": "i2", "d": "i1"}, {}]
PROTOCOLS = ["range:t", "range:t", "range:t", "range:t,u", "range:t sticky:u", "roundrobin:t"]
MAX_SIZE = int(SETTINGS["group.max.size"])
PAUSE_S = 0.005


class RandomWalk:
    """Draws commands for a group; `ours` is looked at for what may be drawn."""

    def __init__(self, seed: int, ours: Player) -> None:
        self.random = random.Random(seed)
        self.ours = ours
        self.static = STATIC[seed % len(STATIC)]
        self.draws: list[tuple[int, Callable[[Client], str | None]]] = [
            (60, self.join),
            (30, self.sync),
            (12, self.heartbeat),
            (9, self.commit),
            (6, self.leave),
            (10, self.remove),
            (4, self.come_back),
            (1, self.close),
            (2, lambda client: "fetch t:0 t:1 u:0 u:1"),
            (2, lambda client: f"forget {self.random.choice(TOPICS)}:0 {self.random.choice(TOPICS)}:1"),
            (1, lambda client: "list"),
            (1, lambda client: "delete"),
        ]

    def next(self) -> str:
        """The next command."""
        weights = [weight for weight, _ in self.draws]
        while True:
            name = self.random.choice(CLIENTS)
            client = self.ours.clients.setdefault(name, Client(name))
            (draw,) = self.random.choices([draw for _, draw in self.draws], weights)
            command = draw(client)
            if command is not None:
                return command

    def waits(self, client: Client) -> bool:
        return any(waiting.client is client for waiting in self.ours.waiting)

    def wrong(self, *chances: str) -> str:
        """Now and then something that does not fit."""
        return f" {self.random.choice(chances)}" if self.random.random() < 0.15 else ""

    def join(self, client: Client) -> str | None:
        if self.waits(client) or (self.may_lead(client.member_id) and len(self.members()) > MAX_SIZE):
            return None
        static = f" instance={self.static[client.name]}" if client.name in self.static else ""
        version = self.random.choice(["", "", " v3", " v5"]) if not static else ""
        protocols = self.random.choice(PROTOCOLS)
        return f"join {client.name}{version} {protocols} session=300s rebalance=300s{static}{self.wrong('id=nobody')}"

    def come_back(self, client: Client) -> str | None:
        """A static member under a new id, whatever its old one waits for."""
        if client.instance is None:
            return None
        return f"join {client.name} range:t id="

    def sync(self, client: Client) -> str | None:
        if self.waits(client) or client.generation < 0:
            return None
        shares = " ".join(f"{name}={self.random.randrange(10)}" for name in self.ours.clients)
        return f"sync {client.name} {shares}{self.wrong('gen=1', 'gen=99', 'protocol=sticky', 'id=nobody')}"

    def heartbeat(self, client: Client) -> str:
        return f"heartbeat {client.name}{self.wrong('gen=1', 'gen=99', 'id=nobody', 'instance=i9')}"

    def commit(self, client: Client) -> str:
        where = f"{self.random.choice(TOPICS)}:{self.random.randrange(2)}={self.random.randrange(1000)}"
        return f"commit {client.name} {where}{self.wrong('gen=1', 'gen=-1', 'id= gen=-1', 'id=nobody')}"

    def leave(self, client: Client) -> str | None:
        if any(waiting.client is client and waiting.what == "sync" for waiting in self.ours.waiting):
            return None
        # Who does not know its id any more goes by its instance.
        described = self.ours.describe()["members"]
        by_instance = [one["member_id"] for one in described if one["group_instance_id"] == client.instance]
        member_id = client.member_id or (by_instance[0] if client.instance and by_instance else "")
        if self.may_lead(member_id) and len(described) > 2:
            return None
        return f"leave {client.name}"

    def remove(self, client: Client) -> str | None:
        """An administrator removes somebody who is nobody's member any more, or never was."""
        alive = {one.member_id for one in self.ours.clients.values()}
        known = self.ours.names.ids()
        members = self.members()
        lost = [member_id for member_id in known if member_id in members and member_id not in alive]
        gone = lost or [member_id for member_id in known if member_id not in alive]
        if not gone:
            return None
        member_id = self.random.choice(gone)
        if self.may_lead(member_id) and len(self.members()) > 2:
            return None
        return f"leave z id={self.ours.names.of(member_id)}"

    def members(self) -> set[str]:
        return {member["member_id"] for member in self.ours.describe()["members"]}

    def may_lead(self, member_id: str) -> bool:
        """Whether it is the leader, or could be as far as anybody was told."""
        members = self.members()
        return member_id in members and (member_id == self.ours.leader or self.ours.leader not in members)

    def close(self, client: Client) -> str:
        return f"close {client.name}"


def check_played_alike(seed: int, group: str, sides: dict[str, Player]) -> None:
    """The same commands to both; AssertionError with the transcript where they differ."""
    walk = RandomWalk(seed, sides["ottla"])
    transcript: list[str] = []
    for _ in range(STEPS):
        command = walk.next()
        transcript.append(f"> {command}")
        lines = {side: player.begin(command) for side, player in sides.items()}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            told = {}
            for side, player in sides.items():
                answers, state = player.look()
                lines[side] += answers
                told[side] = [*sorted(lines[side]), state]
            if told["ottla"] == told["kafka"]:
                break
            if time.monotonic() > deadline:
                story = "\n".join(transcript)
                raise AssertionError(f"seed {seed}, {group}:\n{story}\nottla: {told['ottla']}\nkafka: {told['kafka']}")
            time.sleep(PAUSE_S)  # sleep: until the next look
        transcript += [f"  {line}" for line in told["ottla"]]


@pytest.mark.spec("G1", "G2", "G8", "G9")
@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(20, 800))])
def test_chance_finds_no_difference(
    group_brokers: GroupBrokers, definitions: Definitions, seed: int, unique: str
) -> None:
    opened: list[RawConnection] = []
    connect = {side: connector(one, definitions, opened) for side, one in group_brokers.bootstraps.items()}
    try:
        check_played_alike(seed, unique, {side: Player(make, unique) for side, make in connect.items()})
    finally:
        for connection in opened:
            connection.close()
