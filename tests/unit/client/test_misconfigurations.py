"""Everything that people connect to by mistake is told by what it is: every client, with and without an event loop.

docs/client-errors.md shows each message; `message_in_docs` holds the page to them.
"""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import pytest

from ottla.client.errors import (
    AuthorizationError,
    BrokerError,
    BrokerHangsError,
    BrokerTooOldError,
    BrokerUnreachableError,
    ClientTimeoutError,
    DeliveryError,
    InvalidArgumentError,
    InvalidConfigError,
    NotEnoughReplicasError,
    NotKafkaError,
    NotLeaderError,
    RecordTooLargeError,
    SecurityMismatchError,
    UnknownTopicError,
    UnresolvableHostError,
)
from ottla.client.model import TopicPartition
from ottla.peer import diagnosis
from ottla.peer.errors import CURES
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support import odd_servers

DOCS = (Path(__file__).parents[3] / "docs" / "client-errors.md").read_text()
QUICK = {
    "socket.connection.setup.timeout.ms": 300,
    "request.timeout.ms": 1000,
}
#: For servers that answer something: a busy machine is no reason to take them for one that hangs.
PATIENT = {"socket.connection.setup.timeout.ms": 10_000}


@pytest.fixture(scope="module")
def servers():
    made = odd_servers.OddServers()
    yield made
    made.close()


@pytest.fixture(scope="module")
def closed_port():
    """A port that is taken, so that no server of these tests gets it, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    return odd_servers.tls_context(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def address(servers, closed_port, request):
    """The address of a server of this kind."""

    def of(kind):
        if kind == "closed_port":
            return f"127.0.0.1:{closed_port}"
        if kind == "unresolvable":
            return "no-such-host.invalid:9092"
        if kind == "tls":
            return f"127.0.0.1:{servers.start(odd_servers.hanging, request.getfixturevalue('tls'))}"
        return f"127.0.0.1:{servers.start(getattr(odd_servers, kind))}"

    return of


def use_admin(facade, settings):
    with facade.admin({**QUICK, **settings}, default_api_timeout_ms=2000) as admin:
        admin.list_topics()


def use_consumer(facade, settings):
    with facade.consumer({**QUICK, **settings}, default_api_timeout_ms=2000) as consumer:
        consumer.partitions_for("t")


def poll_consumer(facade, settings):
    with facade.consumer({**QUICK, **settings}, auto_offset_reset="earliest", default_api_timeout_ms=2000) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(timeout_ms=3000)


def use_producer(facade, settings):
    with facade.producer({**QUICK, **settings}, delivery_timeout_ms=2000, linger_ms=0, max_block_ms=2000) as producer:
        producer.send("t", b"v")
        producer.flush()


def use_simple_consumer(facade, settings):
    with facade.simple_consumer({**QUICK, **settings}, default_api_timeout_ms=2000) as consumer:
        consumer.fetch("t", 0, 0)


USES = [use_admin, use_consumer, poll_consumer, use_producer, use_simple_consumer]

KINDS = {
    "unresolvable": (UnresolvableHostError, False),
    "closed_port": (BrokerUnreachableError, False),
    "hanging": (BrokerHangsError, False),
    "closing": (NotKafkaError, False),
    "web": (NotKafkaError, False),
    "patient_web": (NotKafkaError, False),
    "zookeeper": (NotKafkaError, False),
    "closed_zookeeper": (NotKafkaError, False),
    "tls": (SecurityMismatchError, False),
    "sasl_listener": (SecurityMismatchError, False),
    "kafka_0_9": (BrokerTooOldError, False),
    "kafka_0_10": (BrokerTooOldError, False),
}

#: Those that are silent to some questions, and how long these are waited for.
SILENT = {"hanging": 0.1, "patient_web": 0.5}


def masked(message):
    """A message as the page of the docs shows it."""
    return re.sub(r"127\.0\.0\.1:\d+", "broker1:9092", message.replace("no-such-host.invalid:9092", "broker1:9092"))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_client_says_what_is_wrong(facade, address, kind, use, monkeypatch):
    wanted, retriable = KINDS[kind]
    # Whoever answers or hangs up is not waited for.
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", SILENT.get(kind, 3600))
    with pytest.raises(wanted) as caught:
        use(facade, {"bootstrap.servers": address(kind), **({} if kind in SILENT else PATIENT)})
    assert type(caught.value) is wanted
    assert caught.value.retriable is retriable
    message = masked(str(caught.value))
    if kind == "unresolvable":  # the reason in brackets is the system's
        message = re.sub(r"\(.*\)", "(Name or service not known)", message)
    assert f"| `{wanted.__name__}` | {message} |" in DOCS


def test_servers_of_the_list_that_are_wrong_are_passed_over(fake, facade, address, caplog):
    fake.topic("t", 0)
    servers = f"{address('closed_port')},{address('web')},{fake.bootstrap}"
    with facade.admin({"bootstrap.servers": servers, **QUICK, **PATIENT}) as admin:
        assert admin.list_topics() == ["t"]
    passed_over = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    assert [re.search("cannot connect|HTTP", each)[0] for each in passed_over] == ["cannot connect", "HTTP"]


def test_a_server_that_hangs_is_waited_for_a_moment_only(fake, facade, address):
    fake.topic("t", 0)
    settings = {"bootstrap.servers": f"{address('hanging')},{fake.bootstrap}"}
    with facade.admin(settings, socket_connection_setup_timeout_ms=20_000) as admin:
        assert admin.list_topics(timeout_ms=5000) == ["t"]


def test_all_servers_wrong_are_reported_each(facade, address):
    with (
        pytest.raises(BrokerUnreachableError, match=r"no broker of .* can be reached: .*cannot be resolved.*; .*HTTP"),
        facade.admin({"bootstrap.servers": f"no-such-host.invalid:9092,{address('web')}", **QUICK, **PATIENT}) as admin,
    ):
        admin.list_topics()


@pytest.mark.slow
@pytest.mark.parametrize("use", [use_simple_consumer, use_producer])
def test_a_broker_that_is_not_where_it_says(fake, facade, address, use):
    """Bootstrap works, and metadata names an address that does not: advertised.listeners."""
    fake.topic("t", 0)
    fake.advertised[0] = ("no-such-host.invalid", 9092)
    told = r"no-such-host.* cannot be resolved.*broker 0 of .* is known by this address: advertised.listeners"
    with pytest.raises((ClientTimeoutError, DeliveryError), match=told):
        use(facade, {"bootstrap.servers": fake.bootstrap})


@pytest.mark.parametrize("use", USES)
def test_a_trust_store_that_is_missing_is_met_at_once(facade, use):
    settings = {"security.protocol": "SSL", "ssl.truststore.location": "/no/such.jks"}
    with pytest.raises(InvalidConfigError, match=r"ssl.truststore.location=/no/such.jks cannot be read"):
        use(facade, {"bootstrap.servers": "127.0.0.1:9093", **settings})


@pytest.mark.parametrize("code", CURES)
def test_refusals_say_what_helps(code):
    error = BrokerError(code, "doing something")
    assert str(error).endswith(f"({error.name}); {CURES[code]}")
    assert f"| `{error.name}` | {'yes' if error.retriable else 'no'} | {CURES[code]} |" in DOCS
    assert str(BrokerError(code, "doing something", "the broker's words")).endswith(
        f"the broker's words ({error.name})"
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.NOT_ENOUGH_REPLICAS, NotEnoughReplicasError),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NotLeaderError),
        (ErrorCode.POLICY_VIOLATION, BrokerError),
        (9999, BrokerError),
    ],
)
def test_refusals_have_classes_of_their_own(code, kind):
    assert type(BrokerError(code, "doing something")) is kind


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_reported_with_the_nearest_one(fake, facade):
    fake.topic("payments", 0)
    with (
        facade.producer({"bootstrap.servers": fake.bootstrap, **QUICK, **PATIENT, "max.block.ms": 1000}) as producer,
        pytest.raises(UnknownTopicError, match=r"did you mean payments\?") as caught,
    ):
        producer.partitions_for("Payments")
    assert not caught.value.retriable


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("paiments", r"topic paiments does not exist at .*: did you mean payments\? Otherwise create it first"),
        ("zzz", r"topic zzz does not exist at .*: check its name, or create it first"),
    ],
)
def test_only_a_similar_name_is_a_guess(fake, with_cluster, asked, told):
    fake.topic("payments", 0)
    with pytest.raises(UnknownTopicError, match=told):
        with_cluster(fake, lambda cluster: cluster.topics([asked]))


def test_topics_that_one_may_not_see(fake, facade):
    fake.topic("t", 0)
    servers = {"bootstrap.servers": fake.bootstrap, **QUICK, **PATIENT}
    told = r"topic t cannot be used: .*\(TOPIC_AUTHORIZATION_FAILED\); have the cluster's administrator allow it"
    with (
        facade.admin(servers) as admin,
        facade.producer(servers) as producer,
        facade.simple_consumer(servers) as simple,
    ):
        for ask in (
            lambda: admin.describe_topics(["t"]),
            lambda: producer.send("t", b"v"),
            lambda: simple.fetch("t", 0, 0),
        ):
            fake.faults[ApiKey.METADATA].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            with pytest.raises(AuthorizationError, match=told):
                ask()


@pytest.mark.slow
def test_too_few_replicas_fail_the_record_with_what_helps(fake, facade):
    fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)
    settings = {"bootstrap.servers": fake.bootstrap, **QUICK, "delivery.timeout.ms": 1000, "linger.ms": 0}
    told = r"NOT_ENOUGH_REPLICAS\); bring the missing brokers back, or lower the topic's min.insync.replicas"
    with facade.producer(settings) as producer:
        producer.send("t", b"v")
        with pytest.raises(DeliveryError, match=told):
            producer.flush()


def test_records_that_are_too_large_name_the_limit(fake, facade):
    fake.topic("t", 0)
    with (
        facade.producer({"bootstrap.servers": fake.bootstrap, **QUICK, **PATIENT}, max_request_size=1000) as producer,
        pytest.raises(RecordTooLargeError, match=r"max\.request\.size"),
    ):
        producer.send("t", bytes(2000))


@pytest.mark.parametrize("settings", [{}, {"group.id": ""}])
def test_a_group_without_a_name(fake, facade, settings):
    fake.topic("t", 0)

    def subscribe():
        with facade.consumer({"bootstrap.servers": fake.bootstrap, **QUICK, **PATIENT, **settings}) as consumer:
            consumer.subscribe(["t"])

    with pytest.raises(InvalidArgumentError, match=r"group\.id"):
        subscribe()
