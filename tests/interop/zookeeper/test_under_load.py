"""Many clients at once, and a server that is killed again and again: what each client may rely on."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from interop.zookeeper import raw
from interop.zookeeper.conftest import PATIENCE_S, Server
from interop.zookeeper.raw import Event, RawClient
from support.ottla_zookeeper import OttlaZooKeeper
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.slow]

CREATED, DELETED, DATA_CHANGED, CONNECTED = 1, 2, 3, 3
NODES = 4
NO_NODE, NODE_EXISTS = -101, -110
SESSION_MS = 10_000


class Crowd:
    """Threads that run until they are told to stop, and what went wrong in them."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)
                self.stop.set()

        self._threads.append(threading.Thread(target=guarded))
        self._threads[-1].start()

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if self.failures:
            raise self.failures[0]


def test_no_read_shows_a_change_before_its_watch_has_fired(server: Server) -> None:
    root = f"/load-{id(server)}-{time.monotonic_ns()}"
    with RawClient(server.port) as setup:
        for path in ("", *(f"/{number}" for number in range(NODES))):
            assert setup.ask(raw.CREATE, raw.create(root + path)).error == 0
    crowd, fired = Crowd(), [0]

    def write(seed: int) -> None:
        dice = random.Random(seed)
        with RawClient(server.port) as client:
            while not crowd.stop.is_set():
                for _ in range(dice.randrange(1, 8)):
                    client.send(raw.SET_DATA, raw.set_data(f"{root}/{dice.randrange(NODES)}", b"x"))
                while client.sent != client.answered:
                    client.receive(raw.SET_DATA)

    def watch() -> None:
        with RawClient(server.port) as client:
            versions: dict[int, int] = {}
            while not crowd.stop.is_set():
                for number in range(NODES):
                    path = f"{root}/{number}"
                    event = Event(DATA_CHANGED, CONNECTED, path)
                    answer = client.ask(raw.GET_DATA, raw.watching(path, number not in versions))
                    assert isinstance(answer.result, tuple)
                    version = answer.result[1].version
                    if number not in versions:
                        versions[number] = version
                    elif event in client.events:
                        assert client.events.count(event) == 1
                        client.events.remove(event)
                        del versions[number]
                        fired[0] += 1
                    else:
                        assert version == versions[number], "a read was ahead of its event"

    for seed in range(3):
        crowd.add(lambda seed=seed: write(seed))
    for _ in range(3):
        crowd.add(watch)
    try:
        wait_until(lambda: crowd.failures or fired[0] > 300, "events")
    finally:
        crowd.end()


def test_a_watch_of_a_node_that_comes_and_goes_fires_each_time(server: Server) -> None:
    path = f"/coming-and-going-{time.monotonic_ns()}"
    crowd, fired = Crowd(), [0] * 3

    def change() -> None:
        with RawClient(server.port) as client:
            while not crowd.stop.is_set():
                assert client.ask(raw.CREATE, raw.create(path)).error == 0
                assert client.ask(raw.DELETE, raw.versioned(path)).error == 0

    def watch(number: int) -> None:
        with RawClient(server.port) as client:
            while fired[number] < 300:
                # Set just before, between or just after two changes: the next one is due, and no other.
                there = client.ask(raw.EXISTS, raw.watching(path, True)).error == 0
                event = client.next_event()
                assert event == Event(DELETED if there else CREATED, CONNECTED, path)
                fired[number] += 1

    crowd.add(change)
    for number in range(len(fired)):
        crowd.add(lambda number=number: watch(number))
    try:
        wait_until(lambda: crowd.failures or min(fired) == 300, lambda: f"events; {fired} have come")
    finally:
        crowd.end()


class Owner:
    """A client that changes nodes of its own through the deaths of its server, and knows what must be there."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.dice = random.Random(number)
        self.root = f"/owner-{number}"
        #: What each node holds; several possibilities where the answer to the last change was lost.
        self.there: dict[str, set[bytes | None]] = {}
        self.numbers: list[int] = []
        self.changes = 0
        self.client = RawClient(server.port, SESSION_MS).connect()
        assert self.client.ask(raw.CREATE, raw.create(self.root)).error == 0
        assert self.client.ask(raw.CREATE, raw.create(f"{self.root}/mine", flags=1)).error == 0

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                try:
                    self.change()
                except OSError:
                    self.come_back(stop)
        finally:
            self.client.close()

    def change(self) -> None:
        path = f"{self.root}/{self.dice.randrange(20)}"
        before = self.there.get(path, {None})
        value = b"%d" % self.dice.randrange(1 << 30)
        op, body, after = self.dice.choice(
            [
                (raw.CREATE, raw.create(path, value), value),
                (raw.SET_DATA, raw.set_data(path, value), value),
                (raw.DELETE, raw.versioned(path), None),
                (raw.CREATE, raw.create(f"{self.root}/s-", flags=2), b""),
            ]
        )
        if after == b"":
            self.sequential(op, body)
            return
        self.there[path] = before | {after}
        answer = self.client.ask(op, body)
        self.changes += 1
        if answer.error == 0:
            assert (before == {None}) <= (op == raw.CREATE), "what was not there is made only"
            self.there[path] = {after}
        elif answer.error == NO_NODE:
            assert None in before
            self.there[path] = {None}
        else:
            assert answer.error == NODE_EXISTS
            assert before != {None}
            self.there[path] = before - {None}

    def sequential(self, op: int, body: bytes) -> None:
        answer = self.client.ask(op, body)
        assert isinstance(answer.result, str)
        number = int(answer.result[-10:])
        assert not self.numbers or number > self.numbers[-1], "no number is given twice"
        self.numbers.append(number)

    def come_back(self, stop: threading.Event) -> None:
        """Take the session up again."""
        former = self.client
        former.close()
        while not stop.is_set():
            client = None
            try:
                client = RawClient(self.server.port, SESSION_MS, former.session_id, former.password, former.last_zxid)
                client.connect()
            except OSError:
                if client is not None:
                    client.close()
                stop.wait(0.02)
                continue
            self.client = client
            assert client.session_id == former.session_id, "the session is lost"
            return

    def check(self, port: int) -> None:
        """All that must be there is."""
        with RawClient(port) as client:
            for path, possible in self.there.items():
                answer = client.ask(raw.GET_DATA, raw.watching(path))
                found = answer.result[0] if isinstance(answer.result, tuple) else None
                assert found in possible, (path, found, possible)
            names = client.ask(raw.GET_CHILDREN, raw.watching(self.root)).result
            assert isinstance(names, list)
            assert {f"s-{number:010d}" for number in self.numbers} <= set(names)


@pytest.mark.parametrize(
    ("own_server", "deaths"),
    [
        (OttlaZooKeeper, 5),
        pytest.param(OttlaZooKeeper, 40, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
    indirect=["own_server"],
)
def test_a_server_that_is_killed_again_and_again(own_server: Server, deaths: int) -> None:
    crowd = Crowd()
    owners = [Owner(own_server, number) for number in range(5)]
    for owner in owners:
        crowd.add(lambda owner=owner: owner.run(crowd.stop))
    try:
        for _ in range(deaths):
            before = sum(owner.changes for owner in owners)
            wait_until(
                lambda: crowd.failures or sum(owner.changes for owner in owners) > before + 100,  # noqa: B023
                "changes",
            )
            own_server.server.kill9()
            own_server.start()
        wait_until(lambda: crowd.failures or all(owner.client.session_id for owner in owners), "all to be back")
    finally:
        crowd.end()
    for owner in owners:
        owner.check(own_server.port)
        with RawClient(own_server.port) as client:
            answer = client.ask(raw.EXISTS, raw.watching(f"{owner.root}/mine"))
            assert isinstance(answer.result, raw.Stat), "its session lived all the time"
            assert answer.result.ephemeral_owner == owner.client.session_id
