"""A client that may do little gets from ottla what it gets from Apache Kafka 3.9.1: the same error in the same place.

`denials.json` has the answers of an Apache broker with AclAuthorizer, to which ottla's store wrote the ACLs;
`OTTLA_RECORD=1 ./run test --long tests/golden/authorization` records them again.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from golden.authorization.denials import (
    EVERYTHING,
    Acl,
    Json,
    allow,
    message,
    recorded,
    scenes,
    topic_id_text,
)
from ottla.broker.acl_authorizer import AclRules
from ottla.broker.control.acl_store import AclStore
from ottla.broker.served import SERVED
from ottla.wire.apis import API, ApiKey
from ottla.wire.schema import Message
from ottla.zk.kazoo_client import connect_kazoo
from support.apache import ApacheKafka
from support.dispatching import Ask, with_broker
from support.framed_socket import Disconnected
from support.ottla_zookeeper import OttlaZooKeeper
from support.raw_client import RawClient
from support.waiting import wait_until

HERE = Path(__file__).parent
RECORDED = HERE / "denials.json"
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:broker"}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
APACHE = {
    **AUTHORIZER,
    "listeners": "INTERNAL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.internal.plain.sasl.jaas.config": f'{JAAS} username="broker" password="p" user_broker="p";',
}

OFFSETS = "__consumer_offsets"

#: There Apache Kafka 3.9 leaves out the topics, and with them the error, which a client must not miss.
KNOWN = ("nothing", "OffsetFetch 1")

Asked = Callable[[ApiKey, int, Json], Awaitable[Message | None]]

pytestmark = pytest.mark.spec("S3")


async def settled(ask: Asked, key: ApiKey, version: int, body: Json) -> Message:
    """The answer once it has no error."""
    for _ in range(600):
        response = await ask(key, version, body)
        assert response is not None
        text = json.dumps(recorded(response, version, {}))
        if '"errorCode": 0' in text and not any(f'"errorCode": {code}' in text for code in (15, 14, 16)):
            return response
        await asyncio.sleep(0.05)  # sleep: until the coordinator is there
    raise AssertionError(text)


async def prepared(ask: Asked) -> dict[str, str]:
    """The ids of the topics, which are made here, as is the group."""
    topic = {"numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
    made = [{"name": name, **topic} for name in ("t", "hidden")]
    await ask(ApiKey.CREATE_TOPICS, 7, {"topics": made, "timeoutMs": 10000})
    await settled(ask, ApiKey.FIND_COORDINATOR, 3, {"key": "g", "keyType": 0})
    offset = [{"partitionIndex": 0, "committedOffset": 3, "committedMetadata": ""}]
    committed = [{"name": name, "partitions": offset} for name in ("t", "hidden")]
    await settled(ask, ApiKey.INIT_PRODUCER_ID, 4, {"transactionalId": None, "producerEpoch": -1})
    group = {"groupId": "g", "generationId": -1, "memberId": "", "groupInstanceId": None}
    await settled(ask, ApiKey.OFFSET_COMMIT, 8, {**group, "topics": committed})
    found: Any = await settled(
        ask, ApiKey.METADATA, 10, {"topics": [{"name": name} for name in ("t", "hidden", OFFSETS)]}
    )
    return {topic.name: topic_id_text(topic.topic_id) for topic in found.topics}


async def played(ask: Asked, acls: AclStore, in_force: Callable[[list[Acl], int], Awaitable[None]]) -> Json:
    """The answers of all scenes; `in_force` sets the ACLs of one."""
    await in_force(EVERYTHING, 0)
    ids = await prepared(ask)
    found: Json = {}
    for number, scene in enumerate(scenes(ids), 1):
        for pattern in list(acls.rules.patterns):
            assert await acls.change(pattern, lambda _: frozenset()) is None
        await in_force(scene.acls, number)
        answers = []
        for key, version, body in scene.asks:
            answers.append([f"{API[key].name} {version}", recorded(await ask(key, version, body), version, ids)])
        found[scene.name] = answers
    return found


def test_denials_are_apache_kafkas(tmp_path: Path) -> None:
    found: Json = {}

    async def scenario(ask: Ask) -> None:
        acls = ask.broker.acls
        assert acls is not None

        async def asked(key: ApiKey, version: int, body: Json) -> Message | None:
            response: Message | None = await ask(key, version, message(key, version, body))
            return response

        async def in_force(wanted: list[Acl], _: int) -> None:
            for pattern, entry in wanted:
                assert await acls.add(pattern, [entry]) is None

        found.update(await played(asked, acls, in_force))

    named = {name.replace(".", "_"): value for name, value in AUTHORIZER.items()}
    with_broker(tmp_path, scenario, first_topic=None, **named, offsets_topic_num_partitions="4", broker_id="1")
    expected = json.loads(RECORDED.read_text())
    assert list(found) == list(expected)
    differences = [
        f"{scene}: {ours[0]}\n  ours  {json.dumps(ours[1])}\n  Kafka {json.dumps(theirs[1])}"
        for scene, answers in found.items()
        for ours, theirs in zip(answers, expected[scene], strict=True)
        if ours != theirs and (scene, ours[0]) != KNOWN
    ]
    assert differences == [], "\n".join(differences)


def test_every_api_is_asked_for() -> None:
    """But for those that need no access, and one that a broker of Apache Kafka with ZooKeeper does not have."""
    asked = {int(key) for scene in scenes({"t": ""}) for key, _, _ in scene.asks}
    no_access = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert SERVED.keys() - asked == no_access | {ApiKey.UNREGISTER_BROKER}


@pytest.mark.needs_kafka
@pytest.mark.long
def test_the_record_is_what_apache_kafka_answers(tmp_path: Path) -> None:
    zookeeper = OttlaZooKeeper(tmp_path / "zookeeper").start()
    kafka = ApacheKafka(tmp_path / "kafka", zookeeper=zookeeper, overrides=APACHE)
    try:
        kafka.start()
        found = asyncio.run(asked_of_apache(kafka, zookeeper.connect))
    finally:
        kafka.stop()
        zookeeper.stop()
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text(readable(found))
    assert found == json.loads(RECORDED.read_text())


def readable(found: Json) -> str:
    """A line for each answer."""
    parts = []
    for name, answers in found.items():
        lines = ",\n".join(f"  {json.dumps(each)}" for each in answers)
        parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


async def asked_of_apache(kafka: ApacheKafka, connect: str) -> Json:
    zk = await connect_kazoo(connect, 10_000, 30_000)
    acls = AclStore(zk, AclRules())
    await acls.start()

    def answered(key: ApiKey, version: int, body: Json) -> Message | None:
        with RawClient(kafka.port) as client:
            try:
                response: Message = client.ask(message(key, version, body), API[key].response, version)
            except Disconnected:
                return None
            return response

    async def asked(key: ApiKey, version: int, body: Json) -> Message | None:
        return answered(key, version, body)

    def is_denied(topic: str) -> bool:
        wanted = [{"name": topic, "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]
        response: Any = answered(ApiKey.LIST_OFFSETS, 5, {"replicaId": -1, "topics": wanted})
        return bool(response.topics[0].partitions[0].error_code == 29)

    async def in_force(wanted: list[Acl], number: int) -> None:
        # The last changes of both kinds: when they are in force all are. ACLs for all topics allow the probes, too.
        probes = [allow("TOPIC", f"probe-{number}", "DESCRIBE"), allow("TOPIC", f"more-{number}…", "DESCRIBE")]
        for pattern, entry in [*sorted(wanted, key=lambda acl: acl[0].name == "*"), *probes]:
            assert await acls.add(pattern, [entry]) is None
        wait_until(lambda: not is_denied(f"probe-{number}") and not is_denied(f"more-{number}"), "the ACLs")

    try:
        return await played(asked, acls, in_force)
    finally:
        await acls.stop()
        await zk.close()
