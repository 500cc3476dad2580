"""One seed: a cluster, its clients, faults one after the other and together, and the verdict."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client import Admin, NewTopic
from ottla.client.errors import ClientError
from ottla.sim.witness import Wrong
from ottla.testing.reading import read_records
from support.cluster_history import Event, GroupSettled, Place, ReplicaLog, Value, describe, violations
from support.simulated_cluster.brokers import SimulatedCluster, rack_of
from support.simulated_cluster.faults import ALL, LOSSES, ClusterFaults
from support.simulated_cluster.load import GROUP, ClusterLoad, value_of
from support.simulated_cluster.spins import watch_for_spins
from support.simulated_cluster.story import ClusterStory

TOPIC: Final = "events"
PARTITIONS: Final = 2
FAULTS: Final = (4, 10)
#: Of the faults of a seed, how many begin while another is under way.
TOGETHER: Final = 0.35
#: Seconds until a cluster without faults is whole again: longer than any timeout of brokers.
WHOLE_WITHIN_S: Final = 90.0
#: Seconds in which a group settles, and for which it is then watched.
SETTLES_WITHIN_S: Final = 15.0
WATCHED_S: Final = 5.0
#: Turns of the loop after which a seed is ended: ten times what the busiest of 200 needed.
MOST_TURNS: Final = 400_000
#: Lines of the story that are shown around each thing that went wrong.
SHOWN_LINES: Final = 400


@dataclass(slots=True)
class SeedOutcome:
    """The outcome of a seed. `wrong` is empty if all promises were kept."""

    seed: int
    wrong: str
    faults: dict[str, int]
    acknowledged: int
    simulated_s: float
    #: A checksum of all that clients saw and of what is on the disks.
    digest: int
    story: ClusterStory = field(repr=False)
    events: list[Event] = field(repr=False)


class SeedRun:
    """The run of one seed, with faults of these kinds (None: of all).

    Others have a course of their own: they override `course`, and what it begins with.
    """

    #: How many brokers there are.
    brokers = 3
    #: Their settings beside the usual ones.
    settings: Mapping[str, str] = {}
    topic = NewTopic(TOPIC, PARTITIONS, 3)
    places: tuple[Place, ...] = tuple((TOPIC, index) for index in range(PARTITIONS))
    #: Members of the group that reads.
    members = 2
    #: Whether each broker has a rack of its own, in which a reader is.
    in_racks = False

    def __init__(self, seed: int, kinds: Sequence[str] | None = None) -> None:
        self.seed = seed
        self._chance = random.Random(seed)
        self.cluster = SimulatedCluster(self._chance.getrandbits(32), self.brokers, self.settings, self.in_racks)
        self._kinds = list(kinds or ALL)
        self._wrong: list[str] = []
        self.load: ClusterLoad
        self.faults: ClusterFaults

    def run(self) -> SeedOutcome:
        """Run it to its end."""
        cluster = self.cluster
        cluster.loop.limit_turns(MOST_TURNS)
        try:
            cluster.run(lambda _: self._run())
        except Wrong as error:
            self._wrong.append(f"the seed is ended: {error}")
        else:
            self._check()
        self._wrong += [f"{line.who} at {line.at_s:.3f}: {line.what}" for line in cluster.story.bugs]
        self._wrong += [f"{who}: {what}" for who, what in cluster.loop.failures]
        digest = zlib.crc32(repr((self.load.events, cluster.story.lines, self._files)).encode())
        return SeedOutcome(
            self.seed,
            "\n".join(self._wrong),
            self.faults.played,
            self.load.acknowledged,
            self._simulated_s,
            digest,
            cluster.story,
            self.load.events,
        )

    def _check(self) -> None:
        found = violations(self.load.events)
        if found:
            self._wrong.append(describe(found))

    async def _run(self) -> None:
        cluster = self.cluster
        self.faults = ClusterFaults(cluster, random.Random(self._chance.getrandbits(32)))
        self.load = ClusterLoad(cluster, self.places, random.Random(self._chance.getrandbits(32)))
        self._simulated_s, self._files = 0.0, cluster.files()
        watching = cluster.loop.create_task(watch_for_spins(cluster.loop, self._wrong.append))
        await self.start_brokers()
        if not await cluster.until_whole(WHOLE_WITHIN_S):
            self._wrong.append(f"the cluster does not start: {cluster.out_of_sync()}")
            return
        await self.prepare()
        racks = [rack_of(broker_id) for broker_id in cluster.brokers] if self.in_racks else ()
        self.load.start(members=self.members, racks=racks)
        await asyncio.sleep(2.0)
        await self.course()
        await self._end()
        watching.cancel()
        self._simulated_s, self._files = cluster.loop.time(), cluster.files()

    async def start_brokers(self) -> None:
        """Start all brokers."""
        for broker in self.cluster.brokers.values():
            broker.start()

    async def prepare(self) -> None:
        """Create the topic."""
        await self.cluster.loop.process("admin").start(self._create_topic())

    async def _create_topic(self) -> None:
        cluster = self.cluster
        admin = Admin(**cluster.client_settings("admin"))
        while True:
            try:
                await admin.create_topics([self.topic])
            except ClientError as error:
                cluster.story.tell("admin", f"{error!r}")
                await asyncio.sleep(1.0)
            else:
                break
        await admin.close()

    async def course(self) -> None:
        """Play the seed's faults to the cluster under load, most alone, some at once.

        A broker loses its power or its disk only while all replicas are in sync.
        """
        chance = random.Random(self._chance.getrandbits(32))
        running: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        for _ in range(chance.randint(*FAULTS)):
            kind = chance.choice(self._kinds)
            if kind in LOSSES:
                await asyncio.gather(*running)
                if not await self._is_whole_again():
                    return
                await self.faults.play(kind)
                if not await self._is_whole_again():
                    return
                continue
            task = loop.create_task(self.faults.play(kind))
            running.add(task)
            task.add_done_callback(running.discard)
            if chance.random() < TOGETHER:
                await asyncio.sleep(chance.uniform(0.0, 4.0))
            else:
                await asyncio.gather(*running)
                await asyncio.sleep(chance.uniform(0.0, 6.0))
        await asyncio.gather(*running)

    async def _is_whole_again(self) -> bool:
        if await self.cluster.until_whole(WHOLE_WITHIN_S):
            return True
        self._wrong.append(f"the cluster does not recover: {self.cluster.out_of_sync()}")
        return False

    # The end

    async def _end(self) -> None:
        """Without faults the cluster recovers, records are acknowledged, and replicas and clients agree."""
        cluster, load = self.cluster, self.load
        cluster.story.tell("", "no more faults")
        if not await self._is_whole_again():
            return
        acknowledged = load.acknowledged
        if not await cluster.until(lambda: load.acknowledged > acknowledged + 10, WHOLE_WITHIN_S):
            self._wrong.append("nothing is acknowledged after the faults")
            return
        await load.stop_producing()
        cluster.story.tell("", "producers have ended")
        if not await cluster.until(self._replicas_agree, WHOLE_WITHIN_S):
            self._wrong.append(f"the high watermarks of replicas stay different: {self._watermarks()}")
        if not await cluster.until(self._reader_is_at_end, WHOLE_WITHIN_S):
            self._wrong.append(f"the reader does not come to the end: {self._watermarks()}")
        if self.members:
            await asyncio.sleep(SETTLES_WITHIN_S)
            load.events.append(GroupSettled(cluster.loop.time(), GROUP, self.places))
            await asyncio.sleep(WATCHED_S)
        self._read_replicas()

    def _watermarks(self) -> dict[Place, dict[int, int]]:
        found: dict[Place, dict[int, int]] = {place: {} for place in self.places}
        replicas = {place: self._replicas(place) for place in self.places}
        for each in self.cluster.up():
            assert each.broker is not None
            for place in self.places:
                partition = each.broker.partitions.get(*place)
                # A broker that was gone when its replica was removed has it still, as in Kafka.
                if partition is not None and each.id in replicas[place]:
                    found[place][each.id] = partition.log.high_watermark
        return found

    def _replicas_agree(self) -> bool:
        found = self._watermarks()
        return all(
            each.keys() == self._replicas(place) and len(set(each.values())) == 1 for place, each in found.items()
        )

    def _replicas(self, place: Place) -> set[int]:
        """The brokers that are to have a replica, as the controller knows; none while there is no controller."""
        controller = self.cluster.controller()
        known = None
        if controller is not None and controller.broker is not None:
            known = controller.broker.image.partition(*place)
        return set(known.replicas) if known is not None else set()

    def _reader_is_at_end(self) -> bool:
        watermarks = self._watermarks()
        return all(
            reached.get(place, 0) >= max(each.values())
            for reached in self.load.reached.values()
            for place, each in watermarks.items()
        )

    def _read_replicas(self) -> None:
        now_s = self.cluster.loop.time()
        for each in self.cluster.up():
            broker = each.broker
            assert broker is not None
            for place in self.places:
                partition = broker.partitions.get(*place)
                if partition is None or each.id not in self._replicas(place):
                    continue
                records: dict[int, Value] = {
                    record.offset: value_of(record.value) for record in read_records(broker, *place)
                }
                log = partition.log
                leads = partition.leader is not None
                self.load.events.append(
                    ReplicaLog(now_s, place, each.id, leads, log.log_start_offset, log.high_watermark, records)
                )


def run_seed(seed: int, kinds: Sequence[str] | None = None) -> SeedOutcome:
    """Play one seed, with the faults that it draws from these kinds (None: from all)."""
    return outcome_of(SeedRun(seed, kinds))


def outcome_of(run: SeedRun) -> SeedOutcome:
    """Play a run, and clear up."""
    with warnings.catch_warnings():
        # Clients whose processes are dropped with the simulation were not closed.
        warnings.simplefilter("ignore", ResourceWarning)
        # A client that was dropped closes its connections when the collector comes to it: when that is depends on what
        # ran in this process before.
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            outcome = run.run()
        finally:
            if is_enabled:
                gc.enable()
        gc.collect()
    return outcome


def story_of(outcome: SeedOutcome, most: int = SHOWN_LINES) -> str:
    """Format the story's end and the failure."""
    lines: Sequence[object] = outcome.story.lines
    left_out = [f"… {len(lines) - most} lines before …"] if len(lines) > most else []
    told = [*left_out, *map(str, lines[-most:])]
    return "\n".join([f"seed {outcome.seed}", *told, "", outcome.wrong])
