"""TLS, handshakes, ACLs and quotas of Apache Kafka 3.9.1 and ottla, side by side in one run.

    ./run bench security [--quick] [--only tls handshakes acls quotas] [--write]

See README.md beside this file for what each row means, and RESULTS.md for the last complete run.
"""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from contestants import APACHE, NAMES, OTTLA, Started, compile_package, launch, make  # noqa: E402
from loadgen import connect  # noqa: E402
from loads import KIB, MIB, Bulk, produce_and_consume, tiny  # noqa: E402
from report import AT_MOST_EQUAL, Figures, Goal  # noqa: E402
from session import Options, execute, say  # noqa: E402
from throttled_clients import KEYS, QUOTA, off_by  # noqa: E402

from ottla.broker.acl_authorizer import AclAuthorizer  # noqa: E402
from ottla.broker.authorization import Access, Unlogged, on_topic  # noqa: E402
from ottla.client.admin import AclBinding  # noqa: E402
from ottla.client.sync import Admin  # noqa: E402
from ottla.cluster.acls import (  # noqa: E402
    ANY_HOST,
    AclEntry,
    AclPattern,
    AclRules,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.net.connection import Principal  # noqa: E402
from ottla.wire.apis import ApiKey  # noqa: E402
from ottla.wire.codec import encode  # noqa: E402
from ottla.wire.framing import RequestHeader, encode_request_frame  # noqa: E402
from ottla.wire.messages.api_versions import ApiVersionsRequest  # noqa: E402
from support.apache import ApacheZooKeeper  # noqa: E402
from support.certificates import issue, the_authority  # noqa: E402
from support.ports import free_port  # noqa: E402
from support.secured_listeners import SecuredKafka  # noqa: E402
from support.wired_connection import client_context  # noqa: E402

TLS, HANDSHAKES, ACLS, QUOTAS = PARTS = ("tls", "handshakes", "acls", "quotas")
LOADS = (Bulk(KIB, 64 * KIB), Bulk(KIB, MIB))
HANDSHAKERS = 2
API_VERSIONS = encode_request_frame(
    RequestHeader(int(ApiKey.API_VERSIONS), 0, 1, "bench"), encode(ApiVersionsRequest(), 0)
)
TINY_CONNECTIONS = 8
#: ACLs of other users: so many resources, each with as many users.
ACL_RESOURCES, USERS = 2_000, 5
ACLS_AT_ONCE = 1_000
CREATE_TIMEOUT_MS = 120_000
#: Cost of a check in microseconds.
DECIDED, FIRST = Goal(2.0, at_least=False, absolute=True), Goal(50.0, at_least=False, absolute=True)
CHECKS = 2_000
#: How far a throttled client may be off its quota, in percent.
ACCURATE = Goal(5.0, at_least=False, absolute=True)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: dict[str, float]
    bulk_bytes: int
    passes: int
    handshakes: int
    tiny_requests: int


FULL = Plan(3, {APACHE: 60.0, OTTLA: 3.0}, 384 * MIB, 2, 400, 40_000)
QUICK = Plan(1, {APACHE: 12.0, OTTLA: 1.0}, 128 * MIB, 1, 200, 10_000)


class Bench:
    """One run: its figures, and the brokers that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path) -> None:
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._zookeeper = ApacheZooKeeper(folder)
        self._running: dict[str, Started] = {}
        self._tls_ports = {name: free_port() for name in NAMES}
        self._context = client_context()
        self.figures = Figures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        self._zookeeper.start()
        for name in NAMES:
            self._start(name)
            say(f"warming up {name}")
            self._warm_up(self._running[name])
        if QUOTAS in self._parts:
            self._quotas()
        for number in range(1, self._plan.rounds + 1):
            for bulk in LOADS if TLS in self._parts else ():
                self._in_turn(number, f"TLS, {bulk.title}", partial(self._bulk, bulk=bulk))
            if HANDSHAKES in self._parts:
                self._in_turn(number, "handshakes", self._handshakes)
            if ACLS in self._parts:
                self._in_turn(number, "few ACLs", partial(self._tiny, acls="few ACLs"))
        if ACLS in self._parts:
            self._checks()
            for name in NAMES:
                say(f"10,000 ACLs of {name}")
                self._create_acls(self._running[name])
                tiny(self._running[name], TINY_CONNECTIONS, self._plan.tiny_requests // 4)
            for number in range(1, self._plan.rounds + 1):
                self._in_turn(number, "10,000 ACLs", partial(self._tiny, acls="10,000 ACLs"))

    def stop(self) -> None:
        """Kill what still runs."""
        for broker in self._running.values():
            broker.stop()
        self._zookeeper.stop()

    def _start(self, name: str) -> None:
        folder = self._folder / name.split()[0].lower()
        folder.mkdir()
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SSL://127.0.0.1:{self._tls_ports[name]}",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            **issue(the_authority(), "localhost").key_settings(folder / "broker.pem"),
        }
        started = launch(name, make(name, folder, self._zookeeper, settings, SecuredKafka))
        self._running[name] = started
        # From here on what is not allowed is denied: to the broker's own requests, too.
        own = [
            AclBinding("CLUSTER", "kafka-cluster", "User:ANONYMOUS", "ALL"),
            AclBinding("TOPIC", "bench-", "User:ANONYMOUS", "ALL", pattern_type="PREFIXED"),
        ]
        with Admin(bootstrap_servers=f"127.0.0.1:{started.port}") as admin:
            admin.create_acls(own)

    def _create_acls(self, broker: Started) -> None:
        acls = [
            AclBinding("TOPIC", pattern.name, entry.principal, "READ", pattern_type=pattern.pattern_type.name)
            for pattern, entries in _other_acls()
            for entry in entries
        ]
        with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}", request_timeout_ms=CREATE_TIMEOUT_MS) as admin:
            for start in range(0, len(acls), ACLS_AT_ONCE):
                admin.create_acls(acls[start : start + ACLS_AT_ONCE], timeout_ms=CREATE_TIMEOUT_MS)

    def _warm_up(self, broker: Started) -> None:
        """All kinds of load in turn: a JVM compiles what it runs often."""
        deadline = time.monotonic() + self._plan.warm_up_s[broker.name]
        while time.monotonic() < deadline:
            for bulk in LOADS:
                produce_and_consume(broker, bulk, 64 * MIB, 1, self._tls(broker))
            self._shake_hands(broker, 100)
            tiny(broker, TINY_CONNECTIONS, 5_000)

    def _tls(self, broker: Started) -> tuple[int, ssl.SSLContext]:
        return self._tls_ports[broker.name], self._context

    def _in_turn(self, number: int, what: str, measure: Callable[[Started], None]) -> None:
        """Measure both brokers, another one first in every round."""
        say(f"round {number}: {what}")
        for name in NAMES if number % 2 else reversed(NAMES):
            measure(self._running[name])

    def _bulk(self, broker: Started, bulk: Bulk) -> None:
        found = produce_and_consume(broker, bulk, self._plan.bulk_bytes, self._plan.passes, self._tls(broker))
        for group, one in zip(("Produce over TLS", "Consume over TLS"), found, strict=True):
            add, name = self.figures.add, broker.name
            add(group, bulk.title, "MB/s", name, one.mb_per_s)
            add(group, bulk.title, "broker CPU s per GB", name, one.cpu_s_per_gb, AT_MOST_EQUAL)
            add(group, bulk.title, "generator CPU s per GB", name, one.generator_cpu_s_per_gb)

    def _handshakes(self, broker: Started) -> None:
        cpu_before, begun = broker.cpu_seconds(), time.perf_counter()
        self._shake_hands(broker, self._plan.handshakes)
        seconds, cpu_s = time.perf_counter() - begun, broker.cpu_seconds() - cpu_before
        add, what = self.figures.add, f"new connections, {HANDSHAKERS} at a time"
        add("TLS handshakes", what, "per second", broker.name, self._plan.handshakes / seconds)
        add(
            "TLS handshakes",
            what,
            "broker CPU ms each",
            broker.name,
            cpu_s / self._plan.handshakes * 1e3,
            AT_MOST_EQUAL,
        )

    def _shake_hands(self, broker: Started, count: int) -> None:
        """Whole handshakes, each with an ApiVersions request: a client of TLS 1.3 is ready before its server is."""
        port, context = self._tls(broker)

        def one(_: int) -> None:
            with connect(port, context) as sock:
                sock.sendall(API_VERSIONS)
                if not sock.recv(4):
                    raise ConnectionError("the broker closed the connection")

        with ThreadPoolExecutor(HANDSHAKERS) as pool:
            for _ in pool.map(one, range(count)):
                pass

    def _quotas(self) -> None:
        say("quotas, once")
        for (name, key), percent in off_by(list(self._running.values())).items():
            group = f"Clients with a quota of {QUOTA / 1e6:g} MB/s, which send more"
            self.figures.add(group, f"off {KEYS[key]} by", "%", name, percent, ACCURATE)

    def _tiny(self, broker: Started, acls: str) -> None:
        found = tiny(broker, TINY_CONNECTIONS, self._plan.tiny_requests)
        group, what = "Produce requests with a tiny record, each checked", acls
        self.figures.add(group, what, "requests/s", broker.name, found.per_s)
        self.figures.add(group, what, "broker CPU µs per request", broker.name, found.cpu_us)

    def _checks(self) -> None:
        """What a check by ottla's authorizer costs, in processor time, with 10,000 ACLs."""
        user, host = Principal("User", "user-0"), "127.0.0.1"
        known = [on_topic(Operation.READ, f"topic-{number}") for number in range(ACL_RESOURCES)]

        def microseconds(rules: AclRules, accesses: Sequence[Access]) -> float:
            authorizer = AclAuthorizer(rules)
            begun = time.process_time()
            for access in accesses:
                authorizer.permitted(user, host, (access,), ApiKey.FETCH)
            return (time.process_time() - begun) / len(accesses) * 1e6

        for _ in range(self._plan.rounds):
            rules = AclRules()
            for pattern, entries in _other_acls():
                rules.replace(pattern, entries)
            add = partial(self.figures.add, "A check among 10,000 ACLs, in ottla's process")
            add("the first of a topic", "µs", OTTLA, microseconds(rules, known), FIRST)
            add("decided before", "µs", OTTLA, microseconds(rules, known), DECIDED)
            unknown = [Unlogged(Operation.WRITE, ResourceType.TOPIC, None)] * CHECKS
            add("any topic", "µs", OTTLA, microseconds(rules, unknown), FIRST)


def _other_acls() -> list[tuple[AclPattern, list[AclEntry]]]:
    """10,000 ACLs: of half the resources the name is a prefix."""
    entries = [AclEntry(f"User:user-{n}", ANY_HOST, Operation.READ, Permission.ALLOW) for n in range(USERS)]
    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    return [(AclPattern(ResourceType.TOPIC, f"topic-{n}", kinds[n % 2]), entries) for n in range(ACL_RESOURCES)]


def _make(options: Options, folder: Path) -> Bench:
    return Bench(QUICK if options.quick else FULL, options.parts, folder)


if __name__ == "__main__":
    sys.exit(execute("security", __doc__, PARTS, FULL.rounds, _make))
