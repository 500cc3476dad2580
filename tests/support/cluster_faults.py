"""Faults against a cluster under load, one after the other: injected, observed, ended; then the history is checked.

A fault counts if it had an effect (another leader, ISR or controller, a registration gone, a request that failed) and
at least `LEAST_ACKNOWLEDGED` records were acknowledged since the one before.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.assign.java_order import string_hash
from support.broken_network import CLIENTS, ZOOKEEPER, both
from support.cluster_history import (
    GroupDisturbed,
    GroupSettled,
    Place,
    ReplicaLog,
    Violation,
    violations,
)
from support.failing_cluster import OFFSETS, OFFSETS_PARTITIONS, FailingCluster, hold
from support.history_clients import (
    HistoryClient,
    HistoryMember,
    HistoryReader,
    LibrdkafkaHistoryMember,
    LibrdkafkaHistoryProducer,
    LibrdkafkaObserver,
    LibrdkafkaReader,
    OurHistoryMember,
    OurHistoryProducer,
    OurObserver,
    RecordedHistory,
    TopicChurn,
    librdkafka_log,
    librdkafka_settings,
)
from support.moving_faults import MovesUnderLoad, cancelled, interrupted, moved
from support.waiting import wait_until

TOPIC = "orders"
PARTITIONS = 4
#: Its records' timestamps must be near the leader's clock.
CLOCK_TOPIC = "clock"
CLOCK_PLACE = (CLOCK_TOPIC, 0)
LEAST_ACKNOWLEDGED = 1000
#: Acknowledged while the fault lasts, where that is possible at all.
WHILE_IT_LASTS = 100
SEEN_TIMEOUT_S = 40.0
LAST_TIMEOUT_S = 6.0
SETTLE_TIMEOUT_S = 120.0
ASK_TIMEOUT_S = 3.0
SLOW_WRITE_S = 0.7
CLOCK_STEP_MS = 3 * 3_600_000
CLOCK_TOLERANCE_MS = 3_600_000
MEMBERS = 2
#: Between two looks at the threads of librdkafka.
LOOK_AT_THREADS_S = 1.0
#: Problems that a message shows.
SHOWN = 3
GROUPS = ("group-of-ours", "group-of-librdkafka")

#: What was seen of the fault; it is healed after that.
Steps = Generator[list[str], None, None]


@dataclass
class FaultReport:
    """What happened in one fault."""

    kind: str
    victim: str
    began_s: float
    seen: list[str] = field(default_factory=list)
    acknowledged_before: int = 0
    seconds: float = 0.0
    #: Clients of librdkafka that were found deadlocked.
    replaced: list[str] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        """Whether it was a fault at all."""
        return bool(self.seen) and self.acknowledged_before >= LEAST_ACKNOWLEDGED


class FaultCourse:
    """Faults against a running cluster, drawn from a seed."""

    def __init__(self, cluster: FailingCluster, seed: int, tell: Callable[[str], None] = lambda _: None) -> None:
        self.cluster = cluster
        self.history = RecordedHistory()
        self.reports: list[FaultReport] = []
        #: At the end: the batches with records that are there more than once.
        self.repeated: list[str] = []
        self._random = random.Random(seed)
        self._tell = tell
        self._acknowledged_at_last = 0
        self._looked_s = 0.0
        self._clients: list[HistoryClient] = []
        self._churn = TopicChurn("churn", self.history, cluster.bootstrap, ())
        self._admin = AdminClient(
            librdkafka_settings("admin", cluster.bootstrap), logger=librdkafka_log(self.history, "admin")
        )

    # ---- the load

    def begin(self) -> None:
        """Topics and clients."""
        self._make_topics()
        bootstrap, places, history = self.cluster.bootstrap, self.cluster.places, self.history
        self._clients = [
            LibrdkafkaHistoryProducer("librdkafka", history, bootstrap, places),
            OurHistoryProducer("ottla", history, bootstrap, places),
            HistoryReader("reader", history, bootstrap, places),
            OurObserver("observer-of-ours", history, bootstrap, places, GROUPS),
            LibrdkafkaObserver("observer-of-librdkafka", history, bootstrap, places),
            self._churn,
        ]
        members: list[HistoryMember] = [
            make(f"{group}-{number}", group, history, bootstrap, places)
            for group, make in zip(GROUPS, (OurHistoryMember, LibrdkafkaHistoryMember), strict=True)
            for number in range(1, MEMBERS + 1)
        ]
        self._clients += members
        for client in self._clients:
            client.start()
        self._wait_until_settled()

    def _make_topics(self) -> None:
        count = len(self.cluster.brokers)
        wait_until(
            lambda: len(self._admin.list_topics(timeout=SETTLE_TIMEOUT_S).brokers) == count,
            "metadata with all brokers",
            SETTLE_TIMEOUT_S,
        )
        config = {"min.insync.replicas": "2"}
        near = str(CLOCK_TOLERANCE_MS)
        bounds = {"message.timestamp.before.max.ms": near, "message.timestamp.after.max.ms": near}
        topics = [
            NewTopic(TOPIC, len(self.cluster.places), 3, config=config),
            NewTopic(CLOCK_TOPIC, 1, 3, config=config | bounds),
        ]
        for future in self._admin.create_topics(topics, request_timeout=SETTLE_TIMEOUT_S).values():
            try:
                future.result(SETTLE_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def end(self) -> list[Violation]:
        """Stop the load, and the brokers; what was wrong with the history."""
        producers = [each for each in self._clients if isinstance(each, LibrdkafkaHistoryProducer | OurHistoryProducer)]
        self._end_clients(producers)
        self._wait_until_read()
        self._disturb_groups()
        self._end_clients([each for each in self._clients if each not in producers])
        self.cluster.wait_until_well()
        wait_until(lambda: not self._churn.wrong(), lambda: f"{self._churn.wrong()}", SETTLE_TIMEOUT_S, 0.5)
        # All replicas are in sync. A broker that died while a move took it away keeps its log, and serves it no more.
        states = {place: self.cluster.sight.states[place] for place in self.cluster.places}
        for broker in self.cluster.brokers:
            self.cluster.stop(broker)
        for place, (leader, _, replicas) in states.items():
            for broker in replicas:
                records = self.cluster.log_on(broker, place)
                if broker == leader:
                    self.repeated += self.cluster.repeated_on(broker, place, records)
                end = max(records, default=-1) + 1
                self.history.add(
                    partial(
                        ReplicaLog,
                        place=place,
                        broker=broker,
                        leads=broker == leader,
                        start=min(records, default=0),
                        end=end,
                        records=records,
                        writers=self.cluster.writers_on(broker, place),
                    )
                )
        return violations(self.history.events)

    def abandon(self) -> None:
        """End all clients, whatever state they are in."""
        for client in self._clients:
            client.end()

    def _end_clients(self, clients: Sequence[HistoryClient]) -> None:
        for client in clients:
            client.end()
        for client in clients:
            client.wait()

    def _wait_until_read(self) -> None:
        """Until the reader has read what was acknowledged, and the groups have committed it."""

        def behind() -> list[str]:
            [reader] = [each.name for each in self._clients if isinstance(each, HistoryReader)]
            return [
                f"{who} {place}: {self.history.read_to[who, place]} of {end}"
                for place, end in self.history.acknowledged_to.items()
                for who in (reader, *GROUPS)
                if self.history.read_to[who, place] < end
            ]

        def is_read() -> bool:
            self._replace_deadlocked()
            return not behind()

        wait_until(is_read, lambda: f"all to be read: {behind()}", SETTLE_TIMEOUT_S, 0.1)

    # ---- the course

    def run(self, kinds: Sequence[str]) -> None:
        """One fault of each of these kinds, in this order."""
        for kind in kinds:
            self.one(kind)

    def one(self, kind: str) -> FaultReport:
        """A fault, from a healthy cluster to one that has recovered."""
        self._elect_preferred()
        wait_until(
            lambda: self.history.acknowledged >= self._acknowledged_at_last + LEAST_ACKNOWLEDGED,
            lambda: f"{LEAST_ACKNOWLEDGED} acknowledged records since the last fault: {self.state()}",
            SETTLE_TIMEOUT_S,
        )
        self._disturb_groups()
        report = FaultReport(kind, "", time.monotonic())
        report.acknowledged_before = self.history.acknowledged - self._acknowledged_at_last
        self._acknowledged_at_last = self.history.acknowledged
        self.reports.append(report)
        with contextlib.closing(self._steps(report)) as steps:
            report.seen = next(steps)
            for _ in steps:
                raise AssertionError(f"{kind} has one step")
        self.cluster.wait_until_well()
        self._wait_until_settled()
        report.seconds = time.monotonic() - report.began_s
        self._tell(
            f"{len(self.reports):3} {kind} of {report.victim}: {report.seconds:.1f} s, "
            f"{report.acknowledged_before} acknowledged before, seen: {'; '.join(report.seen[:4]) or 'NOTHING'}"
        )
        died = self.cluster.died()
        assert not died, died
        assert not self.history.problems, self.history.problems[:SHOWN]
        return report

    def _disturb_groups(self) -> None:
        for group in GROUPS:
            self.history.add(partial(GroupDisturbed, group=group))

    def state(self) -> str:
        """For messages."""
        return f"{self.cluster.sight}; failed requests: {self.history.failures[-3:]}; {self.history.problems[:3]}"

    def _steps(self, report: FaultReport) -> Steps:
        make: Callable[[FaultReport], Steps] = getattr(self, f"_{report.kind}")
        return make(report)

    def _elect_preferred(self) -> None:
        """Leaders back to where they belong, so that every broker leads something."""
        self.cluster.elect_preferred()
        # A replica that was not in sync a moment ago may have been passed over.
        hold(self.cluster.leaders_are_preferred, "preferred leaders", LAST_TIMEOUT_S)

    def _replace_deadlocked(self) -> None:
        """A consumer of librdkafka may be deadlocked, which is nobody else's fault: another one takes its place."""
        if time.monotonic() < self._looked_s + LOOK_AT_THREADS_S:
            return
        self._looked_s = time.monotonic()
        for number, client in enumerate(self._clients):
            if isinstance(client, LibrdkafkaReader) and client.is_deadlocked():
                self._tell(f"    {client.name} is deadlocked, and replaced")
                client.end()
                self._clients[number] = client.replaced()
                self._clients[number].start()
                if self.reports:
                    self.reports[-1].replaced.append(client.name)

    def _is_settled(self, group: str, began_s: float) -> bool:
        self._replace_deadlocked()
        return self.history.settled(group, self.cluster.places, MEMBERS, began_s)

    def _wait_until_settled(self) -> None:
        places, began_s = self.cluster.places, time.monotonic()
        for group in GROUPS:
            wait_until(
                partial(self._is_settled, group, began_s),
                lambda group=group: (
                    f"{group} to settle: "
                    f"{ {place: self.history.owners[group, place] for place in places} }; {self.state()}"
                ),  # type: ignore[misc]
                SETTLE_TIMEOUT_S,
            )
            self.history.add(partial(GroupSettled, group=group, places=places))

    # ---- who is hit, and what is seen

    def _leader(self) -> int:
        """A broker that leads a partition of the load, and is not the controller if that can be."""
        sight = self.cluster.sight
        leaders = sorted({sight.states[place][0] for place in self.cluster.places})
        return self._random.choice([each for each in leaders if each != sight.controller] or leaders)

    def _follower(self) -> int:
        """Any broker but the controller."""
        sight = self.cluster.sight
        return self._random.choice([each for each in sight.brokers if each != sight.controller])

    def _others(self, broker: int) -> list[str]:
        return [str(each) for each in self.cluster.brokers if each != broker]

    def _failed(self, began_s: float, broker: int) -> list[str]:
        """Requests to this broker that failed since then."""
        to = f"/{broker}]"
        failed = [text for at_s, text in list(self.history.failures) if at_s >= began_s and to in text]
        return [f"{len(failed)} requests failed, the first: {failed[0][:150]}"] if failed else []

    def _await(self, look: Callable[[], list[str]]) -> list[str]:
        """What is seen, as soon as anything is; empty if nothing was in time."""
        hold(lambda: bool(look()), "an effect", SEEN_TIMEOUT_S)
        return look()

    def _let_it_last(self, records: int = WHILE_IT_LASTS) -> None:
        """Go on with the fault until some records were acknowledged meanwhile, at most for a few seconds."""
        goal = self.history.acknowledged + records
        hold(lambda: self.history.acknowledged >= goal, "acknowledged meanwhile", LAST_TIMEOUT_S)

    def _until_left(self, report: FaultReport, *brokers: int) -> list[str]:
        """Until these are registered no more, lead nothing and are in no ISR with others."""
        left = set(self.cluster.brokers) - set(brokers)

        def gone() -> bool:
            sight = self.cluster.sight
            return not any(
                broker in sight.brokers
                or sight.leads(broker)
                or any(left & set(sight.states[place][2]) for place in sight.in_isr(broker))
                for broker in brokers
            )

        wait_until(gone, lambda: f"{brokers} to have left: {self.state()}", SEEN_TIMEOUT_S)
        return self.cluster.watcher.since(report.began_s)

    def _changed(self, report: FaultReport, broker: int) -> list[str]:
        """Leaders, ISRs, registrations, the controller; or requests to this broker that failed."""
        return self._await(lambda: self.cluster.watcher.since(report.began_s) or self._failed(report.began_s, broker))

    # ---- the kinds

    def _down_and_up(self, report: FaultReport, broker: int) -> Steps:
        report.victim = report.victim or str(broker)
        seen = self._until_left(report, broker)
        self._let_it_last()
        yield seen
        self.cluster.start(broker)

    def _kill_leader(self, report: FaultReport) -> Steps:
        broker = self._leader()
        self.cluster.kill9(broker)
        yield from self._down_and_up(report, broker)

    def _kill_follower(self, report: FaultReport) -> Steps:
        broker = self._follower()
        self.cluster.kill9(broker)
        yield from self._down_and_up(report, broker)

    def _kill_controller(self, report: FaultReport) -> Steps:
        broker = self.cluster.sight.controller
        self.cluster.kill9(broker)
        yield from self._down_and_up(report, broker)

    def _kill_coordinator(self, report: FaultReport) -> Steps:
        group = self._random.choice(GROUPS)
        broker = self.cluster.sight.states[OFFSETS, coordinating_partition(group)][0]
        report.victim = f"{broker} (of {group})"
        self.cluster.kill9(broker)
        yield from self._down_and_up(report, broker)

    def _kill_two(self, report: FaultReport) -> Steps:
        two = self._random.sample(sorted(self.cluster.brokers), 2)
        report.victim = " and ".join(map(str, two))
        for broker in two:
            self.cluster.kill9(broker)
        seen = self._until_left(report, *two)
        yield seen
        for broker in two:
            self.cluster.start(broker)

    def _wipe(self, report: FaultReport) -> Steps:
        broker = self._follower()
        self.cluster.kill9(broker)
        self.cluster.wipe(broker)
        yield from self._down_and_up(report, broker)

    def _terminate(self, report: FaultReport) -> Steps:
        broker = self._random.choice(sorted(self.cluster.brokers))
        self.cluster.stop(broker)
        yield from self._down_and_up(report, broker)

    def _paused(self, report: FaultReport, broker: int) -> Steps:
        report.victim = str(broker)
        self.cluster.pause(broker)
        try:
            yield self._changed(report, broker)
        finally:
            self.cluster.go_on(broker)

    def _pause_leader(self, report: FaultReport) -> Steps:
        yield from self._paused(report, self._leader())

    def _pause_follower(self, report: FaultReport) -> Steps:
        yield from self._paused(report, self._follower())

    def _paused_past_session(self, report: FaultReport, broker: int) -> Steps:
        report.victim = str(broker)
        self.cluster.pause(broker)
        try:
            seen = self._until_left(report, broker)
            self._let_it_last()
            yield seen
        finally:
            self.cluster.go_on(broker)

    def _pause_leader_past_session(self, report: FaultReport) -> Steps:
        yield from self._paused_past_session(report, self._leader())

    def _pause_controller_past_session(self, report: FaultReport) -> Steps:
        yield from self._paused_past_session(report, self.cluster.sight.controller)

    def _cut_off(self, report: FaultReport, broker: int, ways: Sequence[tuple[str, str]], *, leaves: bool) -> Steps:
        report.victim = str(broker)
        self.cluster.network.block(ways)
        seen = self._until_left(report, broker) if leaves else self._changed(report, broker)
        self._let_it_last()
        yield seen
        self.cluster.network.heal()

    def _isolate(self, report: FaultReport) -> Steps:
        broker = self._leader()
        yield from self._cut_off(
            report, broker, both(str(broker), [*self._others(broker), ZOOKEEPER, CLIENTS]), leaves=True
        )

    def _isolate_controller(self, report: FaultReport) -> Steps:
        broker = self.cluster.sight.controller
        yield from self._cut_off(report, broker, both(str(broker), [*self._others(broker), ZOOKEEPER]), leaves=True)

    def _isolate_from_peers(self, report: FaultReport) -> Steps:
        broker = self._leader()
        yield from self._cut_off(report, broker, both(str(broker), self._others(broker)), leaves=False)

    def _isolate_from_zookeeper(self, report: FaultReport) -> Steps:
        broker = self._leader()
        yield from self._cut_off(report, broker, both(str(broker), [ZOOKEEPER]), leaves=True)

    def _deaf(self, report: FaultReport) -> Steps:
        broker = self._leader()
        yield from self._cut_off(report, broker, [(each, str(broker)) for each in self._others(broker)], leaves=False)

    def _mute(self, report: FaultReport) -> Steps:
        broker = self._leader()
        yield from self._cut_off(report, broker, [(str(broker), each) for each in self._others(broker)], leaves=False)

    def _mute_to_zookeeper(self, report: FaultReport) -> Steps:
        broker = self._leader()
        yield from self._cut_off(report, broker, [(str(broker), ZOOKEEPER)], leaves=True)

    def _cut_pair(self, report: FaultReport) -> Steps:
        place = self._random.choice(self.cluster.places)
        leader, _, isr = self.cluster.sight.states[place]
        other = self._random.choice([each for each in isr if each != leader])
        yield from self._cut_off(report, leader, both(str(leader), [str(other)]), leaves=False)
        report.victim = f"{leader} and {other}"

    def _ordered(self, report: FaultReport, broker: int, text: str) -> Steps:
        report.victim = str(broker)
        held_up, refused = self.cluster.brokers[broker].order(text)
        try:
            seen = self._changed(report, broker)
            self._let_it_last()
        finally:
            held_up_now, refused_now = self.cluster.brokers[broker].order("well")
        if held_up_now > held_up:
            seen.append(f"{held_up_now - held_up} writes of broker {broker} took {SLOW_WRITE_S} s")
        if refused_now > refused:
            seen.append(f"{refused_now - refused} writes of broker {broker} failed")
        yield seen

    def _slow_disk(self, report: FaultReport) -> Steps:
        yield from self._ordered(report, self._random.choice(sorted(self.cluster.brokers)), f"slow {SLOW_WRITE_S}")

    def _full_disk(self, report: FaultReport) -> Steps:
        yield from self._ordered(report, self._random.choice(sorted(self.cluster.brokers)), "full")

    def _clock_step(self, report: FaultReport) -> Steps:
        """The leader of a topic steps its clock: it refuses records whose timestamps are now far from it."""
        broker = self.cluster.sight.states[CLOCK_PLACE][0]
        report.victim = str(broker)
        step_ms = self._random.choice((-1, 1)) * CLOCK_STEP_MS
        self.cluster.brokers[broker].order(f"clock {step_ms}")
        errors: list[str] = []
        producer = LibrdkafkaProducer(
            librdkafka_settings("clock", self.cluster.bootstrap), logger=librdkafka_log(self.history, "clock")
        )
        producer.produce(
            CLOCK_TOPIC, b"now", on_delivery=lambda error, _: errors.append(str(error)) if error is not None else None
        )
        producer.flush(SEEN_TIMEOUT_S)
        self._let_it_last(LEAST_ACKNOWLEDGED // 2)
        self.cluster.brokers[broker].order("well")
        yield [f"clock stepped by {step_ms} ms, a request failed: {error}" for error in errors]

    def _asked_in_vain(self) -> list[str]:
        """CreateTopics, which needs ZooKeeper: the error."""
        topic = f"meanwhile-{len(self.reports)}"
        future = self._admin.create_topics(
            [NewTopic(topic, 1, 3)], operation_timeout=ASK_TIMEOUT_S, request_timeout=ASK_TIMEOUT_S
        )[topic]
        try:
            future.result(4 * ASK_TIMEOUT_S)
        except (KafkaException, LateError) as error:
            return [f"CreateTopics failed: {error}"]
        return []

    def _kill_zookeeper(self, report: FaultReport) -> Steps:
        report.victim = "ZooKeeper"
        self.cluster.zookeeper.server.kill9()
        seen = self._await(self._asked_in_vain)
        self._let_it_last()
        self.cluster.zookeeper.start()
        yield seen

    def _kill_zookeeper_and_leader(self, report: FaultReport) -> Steps:
        broker = self._leader()
        report.victim = f"ZooKeeper and {broker}"
        self.cluster.zookeeper.server.kill9()
        self.cluster.kill9(broker)
        self._let_it_last()
        self.cluster.zookeeper.start()
        yield self._until_left(report, broker)
        self.cluster.start(broker)

    def _kill_in_turn(self, report: FaultReport) -> Steps:
        """Whoever leads a partition is killed, three times; who was killed before returns meanwhile."""
        place = self._random.choice(self.cluster.places)
        killed: list[int] = []
        for _ in range(3):
            broker = wait_until(partial(self._led_by_one_that_runs, place), f"a leader of {place}", SEEN_TIMEOUT_S)
            self.cluster.kill9(broker)
            killed.append(broker)
            report.victim = ", ".join(map(str, killed))
            # Another one leads, or nobody may: then it is the only one that has everything.
            hold(partial(self._is_not_led_by, place, broker), "another leader", SEEN_TIMEOUT_S)
            self.cluster.start(broker)
        yield self.cluster.watcher.since(report.began_s)

    def _is_not_led_by(self, place: Place, broker: int) -> bool:
        return self.cluster.sight.states[place][0] != broker

    def _led_by_one_that_runs(self, place: Place) -> int:
        """The leader's id if it is registered, else 0."""
        sight = self.cluster.sight
        return sight.states[place][0] if sight.states[place][0] in sight.brokers else 0

    def _kill_all(self, report: FaultReport) -> Steps:
        report.victim = "all"
        for broker in self.cluster.brokers:
            self.cluster.kill9(broker)
        hold(lambda: not self.cluster.sight.brokers, "nobody to be registered", SEEN_TIMEOUT_S)
        yield self.cluster.watcher.since(report.began_s)
        for broker in self._random.sample(sorted(self.cluster.brokers), len(self.cluster.brokers)):
            self.cluster.start(broker)

    def _wipe_leader(self, report: FaultReport) -> Steps:
        broker = self._leader()
        self.cluster.kill9(broker)
        self.cluster.wipe(broker)
        yield from self._down_and_up(report, broker)

    def _thaw_and_kill(self, report: FaultReport) -> Steps:
        """A leader that was paused past its session comes back at the moment in which its successor dies."""
        place = self._random.choice(self.cluster.places)
        broker = self.cluster.sight.states[place][0]
        self.cluster.pause(broker)
        try:
            seen = self._until_left(report, broker)
            self._let_it_last()
            successor = self._led_by_one_that_runs(place)
            report.victim = f"{broker}, {successor}"
            self.cluster.kill9(successor)
        finally:
            self.cluster.go_on(broker)
        yield seen
        self.cluster.start(successor)

    def _flap(self, report: FaultReport) -> Steps:
        """The network of a broker goes and comes, one way and the other."""
        broker = self._leader()
        report.victim = str(broker)
        for number in range(4):
            ways = both(str(broker), [*self._others(broker), ZOOKEEPER])[number % 2 :: 2]
            began_s = time.monotonic()
            self.cluster.network.block(ways)
            hold(lambda began_s=began_s: bool(self.cluster.watcher.since(began_s)), "an effect", LAST_TIMEOUT_S)  # type: ignore[misc]
            self.cluster.network.heal()
        yield self._changed(report, broker)

    def _pause_zookeeper(self, report: FaultReport) -> Steps:
        report.victim = "ZooKeeper"
        self.cluster.zookeeper.server.signal(signal.SIGSTOP)
        try:
            seen = self._await(self._asked_in_vain)
            self._let_it_last()
        finally:
            self.cluster.zookeeper.server.signal(signal.SIGCONT)
        yield seen

    def _moves_under_load(self) -> MovesUnderLoad:
        return MovesUnderLoad(self.cluster, self._random)

    def _move(self, report: FaultReport) -> Steps:
        """All partitions of the load move."""
        report.victim = "all"
        yield from moved(self._moves_under_load(), lambda: self.cluster.watcher.since(report.began_s))

    def _cancel_moves(self, report: FaultReport) -> Steps:
        """Moves are cancelled at any point."""
        report.victim = "all"
        yield from cancelled(self._moves_under_load(), lambda: self.cluster.watcher.since(report.began_s))

    def _kill_controller_in_moves(self, report: FaultReport) -> Steps:
        """The controller dies while it moves partitions; the next one continues."""
        yield from self._kill_in_moves(report, self.cluster.sight.controller)

    def _kill_leader_in_moves(self, report: FaultReport) -> Steps:
        """A leader dies while its partitions move."""
        yield from self._kill_in_moves(report, self._leader())

    def _kill_in_moves(self, report: FaultReport, broker: int) -> Steps:
        report.victim = str(broker)

        def harm() -> None:
            self.cluster.kill9(broker)
            hold(lambda: broker not in self.cluster.sight.brokers, "its registration to be gone", SEEN_TIMEOUT_S)

        moves, watcher = self._moves_under_load(), self.cluster.watcher
        yield from interrupted(moves, lambda: watcher.since(report.began_s), harm, lambda: self.cluster.start(broker))


#: Every kind of fault, in the order in which a short course takes them.
KINDS = (
    "kill_leader",
    "pause_follower",
    "isolate_from_peers",
    "kill_zookeeper",
    "deaf",
    "kill_controller",
    "slow_disk",
    "isolate_from_zookeeper",
    "full_disk",
    "pause_leader_past_session",
    "mute",
    "kill_coordinator",
    "clock_step",
    "isolate",
    "kill_two",
    "cut_pair",
    "pause_controller_past_session",
    "wipe",
    "pause_leader",
    "terminate",
    "pause_zookeeper",
    "mute_to_zookeeper",
    "isolate_controller",
    "kill_follower",
    "kill_zookeeper_and_leader",
    "kill_in_turn",
    "thaw_and_kill",
    "kill_all",
    "wipe_leader",
    "flap",
    "move",
    "cancel_moves",
    "kill_controller_in_moves",
    "kill_leader_in_moves",
)


def coordinating_partition(group: str) -> int:
    """The partition of the offsets topic whose leader coordinates the group, by the hash of Java's strings."""
    signed = int.from_bytes(string_hash(group).to_bytes(4, "big"), "big", signed=True)
    return abs(signed) % OFFSETS_PARTITIONS


def places_of(brokers: int) -> list[Place]:
    """The partitions of the load."""
    return [(TOPIC, number) for number in range(PARTITIONS if brokers <= 3 else brokers + 1)]
