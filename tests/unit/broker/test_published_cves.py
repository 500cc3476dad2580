"""Published vulnerabilities of Apache Kafka that could apply to this broker: `docs/security.md` has the list."""

from __future__ import annotations

import asyncio
import re
import time
import tracemalloc
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from ottla.broker.authorization import Access
from ottla.client.configs.settings import ADMIN, SETTINGS_OF
from ottla.client.configs.values import default_of
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.config.broker import ConfigRefusal, parse_broker_config
from ottla.env.randomness import Randomness
from ottla.net.connection import ANONYMOUS, Principal
from ottla.peer.errors import AuthenticationError
from ottla.peer.tokens import TokenSource
from ottla.security.oauth_login import CLIENT_ID, CLIENT_SECRET, ENDPOINT, oauth_login_of
from ottla.security.scram import (
    SCRAM_MECHANISMS,
    SaslError,
    ScramClient,
    ScramServer,
    credential_of,
    salted_password,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest
from support.dispatching import Ask, with_broker
from support.framed_socket import SIZE
from support.memory_connection import MemoryClient
from support.oauth import provider
from support.raw_client import PRODUCE_V, batch_of, produce_request, request_frame
from support.sasl_broker import PASSWORD, SETTINGS, USER
from support.virtual_cluster import VirtualCluster

pytestmark = pytest.mark.spec("S5")
ROOT = Path(__file__).parents[3]
READ_T = Access(Operation.READ, ResourceType.TOPIC, "t")
WRITE_T = Access(Operation.WRITE, ResourceType.TOPIC, "t")
ALICE = Principal("User", "alice")
#: The default of `sasl.server.max.receive.size`.
LIMIT_BEFORE_LOGIN = 524_288
#: Of memory for each byte that arrived, and beyond that.
FACTOR, CONSTANT_BYTES = 10, 500_000


class Permits:
    """An authorizer that permits these accesses."""

    def __init__(self, *accesses: Access) -> None:
        self._accesses = accesses
        self.asked: set[Access] = set()

    def permitted(
        self, principal: Principal, host: str, accesses: Iterable[Access], api_key: int
    ) -> Collection[Access]:
        asked = set(accesses)
        self.asked |= asked
        return asked & set(self._accesses)

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        return 0


def test_cve_2018_1288_a_client_cannot_fetch_as_a_replica(tmp_path: Path) -> None:
    """Such a fetch would move the high watermark, and what followers have to have."""

    async def scenario(ask: Ask) -> None:
        authorizer = ask.broker.dispatcher.authorizer = Permits(READ_T)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            replica_id=1, max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[partition])]
        )
        (topic,) = (await ask(1, 11, request, ALICE)).responses
        assert [each.error_code for each in topic.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert authorizer.asked == {Access(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)}
        request.replica_id = -1
        (topic,) = (await ask(1, 11, request, ALICE)).responses
        assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE]

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("producer_id", [-1, 7])
@pytest.mark.parametrize("is_control", [False, True])
def test_cve_2018_17196_transactional_records_need_more_than_write_of_the_topic(
    tmp_path: Path, producer_id: int, is_control: bool
) -> None:
    """They are refused, although the request names no transactional id."""
    batch = batch_of(
        b"x",
        is_transactional=True,
        is_control=is_control,
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        base_sequence=min(producer_id, 0),
    )

    async def scenario(ask: Ask) -> None:
        ask.broker.dispatcher.authorizer = Permits(WRITE_T)
        (topic,) = (await ask(0, PRODUCE_V, produce_request("t", 0, batch), ALICE)).responses
        assert topic.partition_responses[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert topic.partition_responses[0].base_offset == -1

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("module", ["JndiLoginModule", "LdapLoginModule"])
def test_cve_2025_27819_login_modules_are_not_loaded(module: str) -> None:
    """Also of CVE-2023-25194 and CVE-2025-27818: what is not one of Kafka's modules is refused."""
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    jaas = f'com.sun.security.auth.module.{module} required user.provider.url="ldap://127.0.0.1:1";'

    async def story(cluster: VirtualCluster) -> None:
        with pytest.raises(AssertionError, match="names another module"):
            await cluster.start(1, **(SETTINGS | {"listeners": "SASL_PLAINTEXT://broker1:9092", name: jaas}))

    VirtualCluster(1).run(story)


def test_cve_2025_27817_what_has_no_token_is_neither_sent_nor_shown(tmp_path: Path) -> None:
    """Neither a file nor another server, which the address of a client's tokens may name, reaches brokers or logs."""
    (secret := tmp_path / "secret").write_text("root:hidden.hidden.hidden")
    defaults = {name: default_of(setting) for name, setting in SETTINGS_OF[ADMIN].items()}
    with provider() as server:
        server.signers[0].key_id = "hidden"
        for address in (secret.as_uri(), f"{server.address}/jwks"):
            login = oauth_login_of({}, defaults | {ENDPOINT: address, CLIENT_ID: "a", CLIENT_SECRET: "b"})
            with pytest.raises(AuthenticationError) as raised:
                asyncio.run(TokenSource(login).token(time.time, Randomness(1)))
            assert "hidden" not in str(raised.value)
        assert server.paths == ["/jwks"]


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_cve_2024_56128_a_login_that_was_recorded_cannot_be_repeated(mechanism: str) -> None:
    credential = credential_of(mechanism, salted_password(mechanism, PASSWORD, b"salt", 4096), b"salt", 4096)
    client = ScramClient(mechanism, USER, PASSWORD, "nonce")
    first = client.first()
    recorded = ScramServer(mechanism, {USER: credential}, "nonce-of-this-exchange", b"secret")
    final = client.step(recorded.step(first))
    assert final is not None
    again = ScramServer(mechanism, {USER: credential}, "nonce-of-another-one", b"secret")
    again.step(first)
    with pytest.raises(SaslError, match="nonce"):
        again.step(final)
    recorded.step(final)
    assert recorded.is_complete
    assert not again.is_complete


def test_cve_2024_31141_settings_read_no_files_or_variables(tmp_path: Path) -> None:
    """`${file:…}` and `${env:…}` in the settings of a broker are text."""
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    config = parse_broker_config(
        {"config.providers": "file", "advertised.listeners": f"PLAINTEXT://${{file:{secret}}}:9092"}
    )
    assert isinstance(config, ConfigRefusal)
    assert "hidden" not in str(config)


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes((*encoded, number))


def framed(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body


VERSIONS = request_frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)[4:]
METADATA = request_frame(MetadataRequest(topics=[]), 12)[4:]
#: As many as fit before a login, each of three bytes at most.
MANY_TAGS = varint(130_000) + b"".join(varint(128 + number) + b"\0" for number in range(130_000))
FILLER = b"\1" * 500_000


@pytest.mark.parametrize("principal", [None, ANONYMOUS])
@pytest.mark.parametrize(
    "sent",
    [
        (LIMIT_BEFORE_LOGIN + 1).to_bytes(4, "big") + FILLER,
        framed(VERSIONS[:-1] + MANY_TAGS),
        framed(METADATA[:11] + MANY_TAGS + METADATA[12:]),
        framed(VERSIONS[:-1] + varint(2**31 - 1)),
        framed(METADATA[:12] + varint(2**31) + b"\0" * 50),
        framed(METADATA[:12] + varint(400_001) + FILLER),
        framed(METADATA[:12] + varint(2**32 - 1) + FILLER),
    ],
    ids=["size", "tags", "tags of the header", "count of tags", "count of an array", "many elements", "count"],
)
def test_cve_2022_34917_memory_follows_the_bytes_that_arrived(principal: Principal | None, sent: bytes) -> None:
    """Also of CVE-2026-111108 (arrays) and CVE-2026-111115 (tagged fields)."""

    async def story(cluster: VirtualCluster) -> None:
        settings = SETTINGS | {"listeners": "PLAINTEXT://broker1:9092,SASL_PLAINTEXT://broker1:9093"}
        broker = await cluster.start(1, **settings)
        for is_measured in (False, True):  # what the first request loads does not count
            client = MemoryClient(broker, "SASL_PLAINTEXT" if principal is None else "PLAINTEXT", principal)
            if is_measured:
                tracemalloc.start()
            client.stream.feed(sent)
            await client.settle(10_000)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            client.connection.close()
            assert peak < CONSTANT_BYTES + FACTOR * len(sent)

    VirtualCluster(1).run(story)


def test_each_line_of_the_list_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| CVE-")]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert named, row
        for path in named:
            assert (ROOT / path).is_file(), row
        for test in re.findall(r"`(test_\w+)`", row):
            assert any(f"def {test}(" in (ROOT / path).read_text() for path in named), row
