"""kill -9 under load, again and again: what was acknowledged stays, in order, once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from e2e.crash_load import (
    GROUP,
    PARTITIONS,
    TOPIC,
    Committer,
    IdempotentProducer,
    Load,
    Log,
    PlainProducer,
    Reader,
    TopicMaker,
    lasting_port,
)
from support.framed_socket import Disconnected
from support.ottla_server import OttlaServer
from support.processes import ServerProcess
from support.raw_client import RawClient
from support.waiting import wait_until

SEED = 20260307

#: Small enough that kills meet segments and indexes being rolled, snapshots being written, the offsets log growing.
SETTINGS = {
    "log.segment.bytes": str(256 * 1024),
    "log.index.interval.bytes": "512",
    "log.flush.interval.messages": "2000",
    "offsets.topic.segment.bytes": str(64 * 1024),
    "offsets.topic.num.partitions": "4",
}
#: Seconds between a start and the kill that follows, at most.
LONGEST_LIFE_S = 1.0
#: One start in this many is killed before it is ready.
EARLY_KILL_IN = 4
#: Acknowledgements of each load between two kills, at least.
FEWEST_ACKNOWLEDGED = {"topics": 1, "committer": 5}
USUAL_ACKNOWLEDGED = 20
PROGRESS_TIMEOUT_S = 120.0


class Storm:
    """A broker, clients at work on it, and kills."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.server = OttlaServer(folder, port=lasting_port(), overrides=SETTINGS)
        self.server.start()
        port = self.server.port
        with RawClient(port) as client:
            assert client.create_topic(TOPIC, PARTITIONS) == 0
            assert client.find_coordinator(GROUP) == 0
        self.plain = [PlainProducer(f"plain{number}", port, seed + number) for number in range(2)]
        self.idempotent = [IdempotentProducer(f"idempotent-{codec}", port, codec) for codec in ("none", "lz4")]
        self.producers: list[PlainProducer | IdempotentProducer] = [*self.plain, *self.idempotent]
        self.committer = Committer("committer", port)
        self.topics = TopicMaker("topics", port)
        self.reader = Reader("reader", port)
        self.loads: list[Load] = [*self.producers, self.committer, self.topics, self.reader]
        self.early_kills = 0

    def begin(self) -> None:
        for load in self.loads:
            load.start()

    def wait_for_progress(self) -> None:
        """Every load is acknowledged something more than before: the broker is at work for all of them again."""
        before = {load.name: load.acknowledged for load in self.loads}
        for load in self.loads:
            more = FEWEST_ACKNOWLEDGED.get(load.name, USUAL_ACKNOWLEDGED)
            wait_until(
                lambda load=load, more=more: load.problems or load.acknowledged >= before[load.name] + more,
                lambda load=load: (
                    f"{load.name} to go on after {load.acknowledged}:\n{self.server.server.output_tail()}"
                ),
                PROGRESS_TIMEOUT_S,
            )
            assert not load.problems, load.problems

    def kill(self) -> None:
        """Kill the broker at some moment while it works, or as it starts again."""
        time.sleep(self.random.uniform(0.0, LONGEST_LIFE_S))  # sleep: kills come at any moment
        self.server.kill9()
        self._check_stderr()
        if self.random.randrange(EARLY_KILL_IN) == 0:
            self._kill_while_starting()
        promised = self._promised_ends()
        offset = self.committer.committed
        self.server.restart()
        with RawClient(self.server.port) as client:
            for partition, end in promised.items():
                assert client.end_offset(TOPIC, partition) >= end, f"partition {partition} has gone back"
            wait_until(lambda: client.committed(GROUP, TOPIC, 0)[0] == 0, "the offsets to be loaded")
            assert client.committed(GROUP, TOPIC, 0)[1] >= offset, "a committed offset has gone back"

    def _kill_while_starting(self) -> None:
        start = ServerProcess("ottla", self.server.command(), self.server.folder)
        time.sleep(self.random.uniform(0.0, self.server.ready_after_s * 1.2))  # sleep: likewise
        start.kill9()
        self.early_kills += 1

    def _promised_ends(self) -> dict[int, int]:
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for producer in self.producers:
            for partition, offset in list(producer.places.values()):
                ends[partition] = max(ends[partition], offset + 1)
        return ends

    def _check_stderr(self) -> None:
        assert "Traceback" not in self.server.server.stderr, self.server.server.stderr

    def check(self) -> None:
        """Stop the clients, kill the broker once more, and compare what it has with what it promised."""
        for load in self.loads:
            load.stop()
        self.server.kill9()
        self._check_stderr()
        self.server.restart()
        log = Log.read(self.server.port)
        log.check_order()
        for producer in self.producers:
            log.check_places(producer.places)
        for sender in self.idempotent:
            assert len(sender.places) == sender.sent
            log.check_once(sender.places)
        log.check_seen(self.reader.seen)
        self._check_groups_and_topics()

    def _check_groups_and_topics(self) -> None:
        with RawClient(self.server.port) as client:
            wait_until(lambda: client.committed(GROUP, TOPIC, 0)[0] == 0, "the offsets to be loaded")
            _, committed = client.committed(GROUP, TOPIC, 0)
            assert self.committer.committed <= committed <= self.committer.attempted
            topics = client.topics()
            assert not self.topics.made - topics, "acknowledged topics are lost"
            assert not self.topics.deleted & topics, "deleted topics are back"
            for topic in self.topics.made:
                assert len(client.metadata(topic).topics[0].partitions) == 2
                assert client.end_offset(topic, 1) == 0
        folders = {path.name.rpartition("-")[0] for path in self.server.log_dir.iterdir() if path.is_dir()}
        assert not self.topics.deleted & folders, "folders of deleted topics are left"

    def end(self) -> None:
        for load in self.loads:
            load._stop_asked.set()
        if self.server.server.running:
            self.server.kill9()


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([b"p 0 ", b"p 2 "], "lost"),
        ([b"p 1 ", b"p 0 ", b"p 2 "], "stands at"),
        ([b"p 0 ", b"p 1 ", b"p 1 ", b"p 2 "], "stands at"),
        ([b"p 0 ", b"p 1 ", b"q 0 ", b"p 2 "], "lost"),
    ],
    ids=["lost", "reordered", "twice", "moved"],
)
def test_the_checks_find_damage(values: list[bytes], what: str) -> None:
    places = {b"p 0 ": (0, 0), b"p 1 ": (0, 1), b"p 2 ": (0, 2)}
    sound = Log({0: [b"p 0 ", b"p 1 ", b"p 2 "]})
    damaged = Log({0: values})
    for log in (sound, damaged):
        with nullcontext() if log is sound else pytest.raises(AssertionError, match=what):
            log.check_order()
            log.check_places(places)
            log.check_once(places)


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Storm]:
    made = Storm(tmp_path / "ottla", SEED)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.slow
@pytest.mark.spec("L3", "P5")
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(3, marks=pytest.mark.timeout(600)),
        pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_nothing_acknowledged_is_lost_by_kills_under_load(storm: Storm, kills: int) -> None:
    storm.begin()
    storm.wait_for_progress()
    for _ in range(kills):
        storm.kill()
        storm.wait_for_progress()
    storm.check()


def test_a_clean_stop_after_a_kill_loses_nothing(tmp_path: Path) -> None:
    """The state that recovery built is what a clean stop writes down and the next start trusts."""
    server = OttlaServer(tmp_path / "ottla", overrides=SETTINGS).start()
    try:
        producer = PlainProducer("plain", server.port, SEED)
        with RawClient(server.port) as client:
            assert client.create_topic(TOPIC, PARTITIONS) == 0
            while producer.acknowledged < 500:
                producer.step(client)
        server.kill9()
        server.restart()
        with RawClient(server.port) as client:
            while producer.acknowledged < 1000:
                producer.step(client)
        assert server.stop() == 0
        server.restart()
        log = Log.read(server.port)
        log.check_order()
        log.check_places(producer.places)
        assert sum(map(len, log.partitions.values())) == producer.acknowledged
        assert not producer.problems
    finally:
        server.stop()


def test_a_request_that_is_cut_off_by_the_kill_gets_no_answer(tmp_path: Path) -> None:
    """The client of a killed broker sees a closed connection, never a wrong answer."""
    server = OttlaServer(tmp_path / "ottla", overrides=SETTINGS).start()
    try:
        with RawClient(server.port) as client:
            assert client.create_topic(TOPIC, 1) == 0
            server.kill9()
            with pytest.raises(Disconnected):
                client.produce(TOPIC, 0, b"")
    finally:
        server.stop()
