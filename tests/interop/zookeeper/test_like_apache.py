"""The same bytes to our server and to Apache ZooKeeper: equal answers and events in equal order, but for ids and times.

Each script is random, from its seed: two clients on one tree, one request after the other, and behind each a ping of
either client, so that all events have come. Sessions end in between, and others begin.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from interop.zookeeper import raw
from interop.zookeeper.raw import RawClient
from support.apache import ApacheZooKeeper
from support.ottla_zookeeper import OttlaZooKeeper

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.needs_kafka, pytest.mark.slow]

STEPS = 120
DIGEST_OF_ME = "me:016djjlksVQS5RgX3M7biBGyYwY="

_numbers = itertools.count()


class Step(NamedTuple):
    """What client `who` (0 or 1) sends."""

    who: int
    op: int
    body: bytes
    xid: int | None = None


class Script:
    """Random requests below `root`."""

    def __init__(self, seed: int, root: str) -> None:
        self.dice = random.Random(seed)
        self.root = root

    def path(self) -> str:
        odd = ["", "/", "//x", "/a/", "/.", "/../b", "/a\x01", "/a\ue000", "/a\0b", "/ü/ß"]
        usual = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1", "/nope/z", "/s-", "/a/s-"]
        return self.root + self.dice.choice(odd if self.dice.random() < 0.06 else usual)

    def data(self) -> bytes | None:
        return self.dice.choice([None, b"", b"1", b"\xff\0", b"x" * 1000])

    def version(self) -> int:
        return self.dice.choice([-1, -1, -1, 0, 1, 2])

    def acl(self) -> list[raw.Acl]:
        mine: raw.Acl = (31, "digest", DIGEST_OF_ME)
        some: list[raw.Acl] = [
            (31, "world", "anyone"), (1, "world", "anyone"), mine, (31, "auth", ""), (7, "ip", "127.0.0.1"),
            (31, "ip", "no address"), (31, "digest", "half"), (31, "nobody", "x"), (31, "world", "someone"),
        ]  # fmt: skip
        if self.dice.random() < 0.8:
            return [(31, "world", "anyone")]
        return self.dice.choices(some, k=self.dice.choice([0, 1, 1, 2]))

    def change(self) -> tuple[int, bytes]:
        """A change that a multi may have, too."""
        flags = self.dice.choice([0, 0, 0, 0, 1, 1, 2, 3])
        return self.dice.choice(
            [
                lambda: (raw.CREATE, raw.create(self.path(), self.data(), flags, self.acl())),
                lambda: (raw.CREATE, raw.create(self.path(), self.data(), flags)),
                lambda: (raw.CREATE2, raw.create(self.path(), self.data(), flags)),
                lambda: (raw.DELETE, raw.versioned(self.path(), self.version())),
                lambda: (raw.SET_DATA, raw.set_data(self.path(), self.data(), self.version())),
            ]
        )()

    def reading(self) -> tuple[int, bytes]:
        op = self.dice.choice([raw.EXISTS, raw.GET_DATA, raw.GET_CHILDREN, raw.GET_CHILDREN2])
        return op, raw.watching(self.path(), self.dice.random() < 0.6)

    def several(self) -> tuple[int, bytes]:
        parts = [
            self.change() if self.dice.random() < 0.8 else (raw.CHECK, raw.versioned(self.path(), self.version()))
            for _ in range(self.dice.choice([0, 1, 2, 3, 5]))
        ]
        return raw.MULTI, raw.multi(parts)

    def inquiry(self) -> tuple[int, bytes]:
        """What few clients ask. Not checkWatches: Apache ZooKeeper 3.8.4 says yes where anybody watches the node."""
        reads = [
            (self.dice.choice([raw.GET_DATA, raw.GET_CHILDREN]), raw.watching(self.path(), self.dice.random() < 0.5))
            for _ in range(self.dice.choice([0, 1, 3]))
        ]
        return self.dice.choice(
            [
                lambda: (raw.GET_EPHEMERALS, raw.string(self.dice.choice([self.root, self.path(), "/", ""]))),
                lambda: (raw.GET_ALL_CHILDREN_NUMBER, raw.string(self.path())),
                lambda: (raw.WHO_AM_I, b""),
                lambda: (raw.REMOVE_WATCHES, raw.versioned(self.path(), self.dice.randrange(5))),
                lambda: (raw.MULTI_READ, raw.multi(reads)),
            ]
        )()

    def rare(self) -> tuple[int, bytes]:
        paths = [[self.path() for _ in range(2)] for _ in range(3)]
        # Of a time before all, and of one after all: what lies between is not the same number in both.
        zxid = self.dice.choice([0, 2**62])
        return self.dice.choice(
            [
                lambda: (raw.SYNC, raw.string(self.path())),
                lambda: (raw.CLOSE, b""),
                lambda: (raw.GET_ACL, raw.string(self.path())),
                lambda: (raw.SET_ACL, raw.set_acl(self.path(), self.acl(), self.version())),
                lambda: (raw.SET_WATCHES, raw.set_watches(zxid, *paths)),
                lambda: (raw.AUTH, raw.auth("digest", b"me:secret")),
                lambda: (raw.GET_DATA, raw.string(self.path())[:3]),
                lambda: (raw.SET_DATA, raw.string(self.path())),
            ]
        )()

    def steps(self) -> Iterator[Step]:
        yield Step(0, raw.CREATE, raw.create(self.root))
        kinds: list[Callable[[], tuple[int, bytes]]] = [
            self.change, self.reading, self.several, self.rare, self.inquiry,
        ]  # fmt: skip
        for _ in range(STEPS):
            (kind,) = self.dice.choices(kinds, [5, 4, 1, 1, 1])
            op, body = kind()
            xid = {raw.SET_WATCHES: -8, raw.AUTH: -4}.get(op)
            yield Step(self.dice.randrange(2), op, body, xid)


def transcript(port: int, seed: int, root: str) -> list[object]:
    """What the clients are told, step by step, without ids and times."""
    told: list[object] = []
    clients = [RawClient(port, timeout_ms=8000) for _ in range(2)]
    try:
        owners = {0: "nobody", **{client.connect().session_id: f"client {n}" for n, client in enumerate(clients)}}
        # Its parent is the script's own, too: sequential names beside `root` count what was made there before.
        assert clients[0].ask(raw.CREATE, raw.create(root.rpartition("/")[0])).error == 0
        for step in Script(seed, root).steps():
            client = clients[step.who]
            answer = client.ask(step.op, step.body, step.xid)
            if step.op == raw.CLOSE:
                client.close()
                client = clients[step.who] = RawClient(port, timeout_ms=8000).connect()
                owners[client.session_id] = f"client {step.who}"
            for each in clients:
                each.ping()
            events = [list(each.events) for each in clients]
            if step.op == raw.CLOSE:
                # Ephemeral nodes go in the order of a Java hash set.
                events = [sorted(those) for those in events]
            told.append((step, answer.error, plain(answer.result, owners), events))
            for each in clients:
                each.events.clear()
        for client in clients:
            client.ask(raw.CLOSE)
    finally:
        for client in clients:
            client.close()
    return ranked(told)


def plain(value: object, owners: dict[int, str]) -> object:
    """A result without times, and with names for sessions; transaction ids are marked."""
    if isinstance(value, raw.Stat):
        changed = value._replace(ctime=0, mtime=0)
        zxids = tuple(("zxid", zxid) for zxid in (value.czxid, value.mzxid, value.pzxid))
        return (*zxids, changed._replace(czxid=0, mzxid=0, pzxid=0, ephemeral_owner=0), owners[value.ephemeral_owner])
    if isinstance(value, tuple | list):
        return type(value)(plain(part, owners) for part in value)
    return value


def ranked(told: list[object]) -> list[object]:
    """Transaction ids by their order: Apache ZooKeeper counts failed transactions, too."""
    seen: set[int] = set()

    def collect(value: object) -> None:
        if isinstance(value, tuple) and len(value) == 2 and value[0] == "zxid":
            seen.add(value[1])
        elif isinstance(value, tuple | list):
            for part in value:
                collect(part)

    def replace(value: object) -> object:
        if isinstance(value, tuple) and len(value) == 2 and value[0] == "zxid":
            return ranks[value[1]]
        if isinstance(value, tuple | list) and type(value) in (tuple, list):
            return type(value)(replace(part) for part in value)
        return value

    collect(told)
    ranks = {zxid: rank for rank, zxid in enumerate(sorted(seen))}
    return [replace(each) for each in told]


@pytest.mark.parametrize("seed", range(12))
def test_equal_answers(seed: int, ottla_zookeeper: OttlaZooKeeper, apache_zookeeper: ApacheZooKeeper) -> None:
    check_alike(seed, ottla_zookeeper, apache_zookeeper)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_equal_answers_of_many_scripts(ottla_zookeeper: OttlaZooKeeper, apache_zookeeper: ApacheZooKeeper) -> None:
    for seed in range(1000, 1200):
        check_alike(seed, ottla_zookeeper, apache_zookeeper)


def check_alike(seed: int, ours: OttlaZooKeeper, theirs: ApacheZooKeeper) -> None:
    root = f"/like-apache-{next(_numbers)}/root"
    mine, other = (transcript(server.port, seed, root) for server in (ours, theirs))
    for number, (found, expected) in enumerate(zip(mine, other, strict=True)):
        assert found == expected, f"seed {seed}, step {number}"
