"""Runs the fuzzer's cases on a broker in this process, on virtual time and with its disk in memory, and judges it."""

from __future__ import annotations

import asyncio
import logging
import time
import tracemalloc
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fuzz.cases import FuzzCase, State, case, targets
from ottla.broker.authorization import Authorizer
from ottla.broker.context import RequestContext
from ottla.broker.server import Broker
from ottla.cluster.quotas import DEFAULT, QuotaEntity, QuotaKey
from ottla.net.connection import Principal
from ottla.wire.apis import API
from ottla.wire.codec import decode_prefix, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import RequestHeader, encode_request_frame, parse_response_header
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.schema import ArrayKind, Struct, StructKind
from support.memory_connection import MemoryClient
from support.raw_client import PRODUCE_V, batch_of, produce_request
from support.sasl_broker import SETTINGS as SASL_SETTINGS
from support.virtual_cluster import VirtualCluster

#: A broker handles so many frames; a new one with an empty disk follows.
FRAMES_PER_BROKER = 3000
#: So often the broker has to serve another client.
FRAMES_PER_LOOK = 500
#: Virtual time for an answer; after it the client goes away.
PATIENCE_S = 0.5
PATIENCE_STEP_S = 0.01
#: Processor time of one frame, with all that it sets off.
MOST_CPU_S = 1.0
#: Memory while a frame is handled: this many bytes, and this many for each byte that arrived.
MOST_BYTES, MOST_BYTES_PER_BYTE = 2_000_000, 200
#: Of so many frames one is measured: that takes time.
MEASURED_EVERY = 5
SETTINGS = {
    "listeners": "PLAINTEXT://broker1:9092,SASL_PLAINTEXT://broker1:9093",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "group.initial.rebalance.delay.ms": "0",
    **{name: value for name, value in SASL_SETTINGS.items() if name.startswith(("listener.name", "sasl.enabled"))},
}
NEVER_USED_UP = 1e15
#: Faults after which a run ends.
MOST_FAILURES = 20
#: What a controller says to brokers, and a broker to it: who may send it may end a broker's service.
OF_CONTROLLERS = frozenset((4, 5, 6, 7))
PRINCIPALS = (Principal("User", "admin"), Principal("User", "alice"))
Kind = tuple[int, int, State]


class FuzzFailure(AssertionError):
    """What a case has shown."""


@dataclass
class FuzzReport:
    """The counts of a run, by API, version and state: reached, accepted, refused, closed, waiting."""

    counts: dict[Kind, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    frames: int = 0
    failures: list[str] = field(default_factory=list)
    damages: Counter[str] = field(default_factory=Counter)
    most_bytes: tuple[int, str] = (0, "")
    most_cpu_s: tuple[float, str] = (0.0, "")

    def add(self, other: FuzzReport) -> None:
        """Take over the counts of another run."""
        for kind, counts in other.counts.items():
            self.counts[kind].update(counts)
        self.frames += other.frames
        self.failures += other.failures
        self.damages.update(other.damages)
        self.most_bytes = max(self.most_bytes, other.most_bytes)
        self.most_cpu_s = max(self.most_cpu_s, other.most_cpu_s)


class Exceptions(logging.Handler):
    """Keeps what the broker logs with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self._formatter.format(record))


def fuzz(seed: int, numbers: Iterable[int]) -> FuzzReport:
    """Run these cases; the report has what failed. Raises FuzzFailure where the broker cannot be used any more."""
    report = FuzzReport()
    todo = deque(numbers)
    logger = logging.getLogger("ottla")
    exceptions = Exceptions()
    before = logger.level, logger.propagate
    logger.addHandler(exceptions)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        while todo:
            VirtualCluster(seed + todo[0]).run(partial(_one_broker, seed, todo, report, exceptions))
    finally:
        logger.removeHandler(exceptions)
        logger.level, logger.propagate = before
    return report


def fuzzed(seed: int, numbers: range) -> FuzzReport:
    """As `fuzz`; what ends the run early is in the report, too."""
    try:
        return fuzz(seed, numbers)
    except FuzzFailure as failure:
        return FuzzReport(failures=[str(failure)])


async def _one_broker(
    seed: int, todo: deque[int], report: FuzzReport, exceptions: Exceptions, cluster: VirtualCluster
) -> None:
    """Start a broker, and give it cases as long as it is the same."""
    cluster.network.history = None
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: exceptions.found.append(f"{context}: {context.get('exception')!r}")
    )
    run = _Run(await cluster.start(1, **SETTINGS), seed, report, exceptions)
    await cluster.until(lambda: cluster.controller() == 1, "a controller")
    await run.look("first")
    for done in range(1, FRAMES_PER_BROKER + 1):
        number = todo.popleft()
        has_new_controller = await run.one(case(seed, number))
        if not (has_new_controller or done % FRAMES_PER_LOOK == 0 or not todo or done == FRAMES_PER_BROKER):
            continue
        try:
            await run.look(str(number))
        except FuzzFailure:
            if has_new_controller:
                return
            raise
        if not todo:
            return


class _Run:
    """One broker under fire."""

    def __init__(self, broker: Broker, seed: int, report: FuzzReport, exceptions: Exceptions) -> None:
        self._broker = broker
        self._seed = seed
        self._report = report
        self._exceptions = exceptions
        self._authorizer: Authorizer | None = broker.dispatcher.authorizer
        #: The requests that came through all gates.
        self._reached: list[tuple[int, int]] = []
        broker.dispatcher.intercept = self._note
        broker.client_quotas.set_all({QuotaEntity(DEFAULT): dict.fromkeys(QuotaKey, NEVER_USED_UP)})

    def _note(self, context: RequestContext, request: object) -> None:
        self._reached.append((context.header.api_key, context.api_version))

    def _client(self, state: State, number: int = 0) -> MemoryClient:
        # The broker has one authorizer for all listeners.
        self._broker.dispatcher.authorizer = None if state is State.PLAINTEXT else self._authorizer
        if state is State.PLAINTEXT:
            return MemoryClient(self._broker)
        client = MemoryClient(self._broker, "SASL_PLAINTEXT", None)
        if state is State.AFTER_LOGIN:
            principal = PRINCIPALS[number // 3 % len(PRINCIPALS)]
            client.connection.set_principal(principal)
        return client

    async def one(self, fuzz_case: FuzzCase) -> bool:
        """Send a case on a connection of its own, and judge what the broker does.

        Returns whether it may have made the broker follow another controller, or leave.
        """
        client = self._client(fuzz_case.state, fuzz_case.number)
        # In every other round of all APIs requests count in quotas.
        is_charged = fuzz_case.number // (len(State) * len(targets())) % 2
        self._broker.dispatcher.quotas = self._broker.client_quotas if is_charged else None
        self._reached.clear()
        is_measured = not fuzz_case.number % MEASURED_EVERY
        if is_measured:
            tracemalloc.start()
        began_s = time.thread_time()
        try:
            client.stream.feed(fuzz_case.sent)
            await self._wait(client)
            used_s = time.thread_time() - began_s
            peak = tracemalloc.get_traced_memory()[1] if is_measured else 0
        finally:
            tracemalloc.stop()
        outcome = self._outcome(client, fuzz_case)
        client.connection.close()
        self._count(fuzz_case, outcome)
        shown = f"case {fuzz_case.number} of seed {self._seed}: {self._shown(fuzz_case)}"
        self._report.most_bytes = max(self._report.most_bytes, (peak, shown))
        self._report.most_cpu_s = max(self._report.most_cpu_s, (used_s, shown))
        if self._exceptions.found:
            self._fail(shown, "".join(self._exceptions.found))
            self._exceptions.found.clear()
        if used_s > MOST_CPU_S:
            self._fail(shown, f"it takes {used_s:.2f} s of processor time")
        if peak > MOST_BYTES + MOST_BYTES_PER_BYTE * len(fuzz_case.sent):
            self._fail(shown, f"{len(fuzz_case.sent)} bytes take {peak} bytes of memory")
        return any(key in OF_CONTROLLERS for key, _ in self._reached)

    def _fail(self, shown: str, why: str) -> None:
        """Note a fault. Raises FuzzFailure when there are many."""
        self._report.failures.append(f"{shown}\n{why}")
        if len(self._report.failures) >= MOST_FAILURES:
            raise FuzzFailure("\n\n".join(self._report.failures))

    def _shown(self, fuzz_case: FuzzCase) -> str:
        name = API[fuzz_case.key].name
        return f"{name} v{fuzz_case.version}, {fuzz_case.state.value}, {fuzz_case.damage}: {fuzz_case.sent[:500].hex()}"

    async def _wait(self, client: MemoryClient) -> None:
        for _ in range(round(PATIENCE_S / PATIENCE_STEP_S)):
            if client.is_settled or await client.settle():
                return
            await asyncio.sleep(PATIENCE_STEP_S)  # sleep: virtual time

    def _outcome(self, client: MemoryClient, fuzz_case: FuzzCase) -> str:
        answers = client.frames()
        if not answers:
            return "closed" if client.connection.closed else "unanswered"
        if len(self._reached) != 1:
            return "several"
        key, version = self._reached[0]
        try:
            body = memoryview(answers[0])
            _, at = parse_response_header(body, key, version)
            answer, _ = decode_prefix(API[key].response, body, version, at)
        except Exception as error:
            raise FuzzFailure(f"the answer to case {fuzz_case.number} cannot be read: {answers[0].hex()}") from error
        return "refused" if has_error(answer) else "accepted"

    def _count(self, fuzz_case: FuzzCase, outcome: str) -> None:
        report = self._report
        report.frames += 1
        report.damages[fuzz_case.damage] += 1
        for key, version in self._reached:
            report.counts[key, version, fuzz_case.state]["reached"] += 1
        kind = self._reached[0] if self._reached else (fuzz_case.key, fuzz_case.version)
        report.counts[*kind, fuzz_case.state][outcome] += 1

    async def look(self, name: str) -> None:
        """See that the broker serves a client: a new topic takes a record. Raises FuzzFailure."""
        self._broker.dispatcher.authorizer = None
        client = MemoryClient(self._broker)
        topic = f"look-{name}"
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        created = await self._ask(client, 19, 5, CreateTopicsRequest(topics=[wanted], timeout_ms=1000))
        if created.topics[0].error_code:
            raise FuzzFailure(f"before case {name} of seed {self._seed} the broker creates no topic: {created}")
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        question = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
        for _ in range(100):
            produced = await self._ask(client, 0, PRODUCE_V, produce_request(topic, 0, batch_of(b"alive")))
            if produced.responses[0].partition_responses[0].error_code == 0:
                break
            await asyncio.sleep(PATIENCE_STEP_S)  # sleep: virtual time
        answer = await self._ask(client, 2, 6, question)
        if answer.topics[0].partitions[0].offset != 1:
            raise FuzzFailure(f"after case {name} of seed {self._seed} the broker takes no record: {produced} {answer}")
        client.connection.close()
        if len(self._broker.connections):
            raise FuzzFailure(f"{len(self._broker.connections)} connections are left")

    async def _ask(self, client: MemoryClient, key: int, version: int, request: Any) -> Any:
        client.stream.feed(encode_request_frame(RequestHeader(key, version, 1, "look"), encode(request, version)))
        for _ in range(1000):
            if client.is_settled or await client.settle():
                break
            await asyncio.sleep(PATIENCE_STEP_S)  # sleep: virtual time
        answers = client.frames()
        if not answers:
            raise FuzzFailure(f"another client gets no answer to {API[key].name}")
        body = memoryview(answers[0])
        _, at = parse_response_header(body, key, version)
        return decode_prefix(API[key].response, body, version, at)[0]


def has_error(answer: Struct) -> bool:
    """Whether an answer has an error anywhere."""
    for each in answer.SCHEMA.fields:
        value = getattr(answer, each.name)
        if each.name == "error_code" and value not in (ErrorCode.NONE, None):
            return True
        if isinstance(each.kind, StructKind) and value is not None and has_error(value):
            return True
        if isinstance(each.kind, ArrayKind) and any(isinstance(one, Struct) and has_error(one) for one in value or ()):
            return True
    return False
