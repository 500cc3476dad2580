from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import pytest

from ottla.assign.java_order import scala_map_order
from ottla.config.listeners import Endpoint
from ottla.zk.layout import (
    DEFAULT_ENTITY,
    BrokerConfigZnode,
    BrokerIdZnode,
    BrokerRegistration,
    ClientConfigZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ConsumerIdZnode,
    ConsumerOffsetZnode,
    ConsumerRegistration,
    ControllerEpochZnode,
    ControllerZnode,
    IpConfigZnode,
    IsrChangeNotificationZnode,
    LogDirEventNotificationZnode,
    PartitionOwnerZnode,
    PartitionStateZnode,
    PreferredReplicaElectionZnode,
    ProducerIdBlockZnode,
    ReassignPartitionsZnode,
    SubscriptionPattern,
    TopicAssignment,
    TopicConfigZnode,
    TopicZnode,
    UserConfigZnode,
    ZnodeDataError,
    named_entity,
)
from support.steps import result_of

pytestmark = pytest.mark.spec("Z1")


def test_a_broker_of_old_has_host_and_port_only() -> None:
    data = b'{"jmx_port":-1,"timestamp":"1","host":"h","version":1,"port":9092}'
    assert BrokerIdZnode.decode(3, data) == BrokerRegistration(
        3, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), None, -1, 1
    )


def test_a_broker_of_version_2_names_protocols_as_listeners() -> None:
    data = (
        b'{"endpoints":["PLAINTEXT://a:1","SSL://b:2"],"jmx_port":-1,"timestamp":"1","version":2,"host":"a","port":1}'
    )
    assert BrokerIdZnode.decode(3, data).endpoints == (
        Endpoint("PLAINTEXT", "PLAINTEXT", "a", 1),
        Endpoint("SSL", "SSL", "b", 2),
    )


def test_host_and_port_are_those_of_the_first_plaintext_endpoint() -> None:
    endpoints = (Endpoint("OUT", "SSL", "o", 1), Endpoint("IN", "PLAINTEXT", "::1", 2))
    data = BrokerIdZnode.encode(BrokerRegistration(1, endpoints, timestamp_ms=5))
    assert data == (
        b'{"features":{},"listener_security_protocol_map":{"OUT":"SSL","IN":"PLAINTEXT"},'
        b'"endpoints":["OUT://o:1","IN://[::1]:2"],"jmx_port":-1,"port":2,"host":"::1","version":5,"timestamp":"5"}'
    )
    assert BrokerIdZnode.decode(1, data).endpoints == endpoints
    assert b'"port":-1,"host":null' in BrokerIdZnode.encode(BrokerRegistration(1, endpoints[:1]))


def test_topics_of_older_versions_have_no_id() -> None:
    assert TopicZnode.decode("t", b'{"version":1,"partitions":{"1":[4],"0":[3,5]}}') == TopicAssignment(
        None, {1: (4,), 0: (3, 5)}, {}, {}
    )
    assert TopicZnode.encode(TopicAssignment.of(None, {0: [1]})).startswith(b'{"partitions":{"0":[1]},"adding')


def test_a_reassignment_is_kept() -> None:
    assignment = TopicAssignment(UUID(int=5), {0: (1, 2)}, {0: (2,)}, {0: (1,)})
    assert TopicZnode.decode("t", TopicZnode.encode(assignment)) == assignment


@pytest.mark.parametrize("count", [0, 1, 600, 5_000])
def test_the_data_of_a_large_topic_is_made_in_parts(count: int) -> None:
    replicas = {index: (index % 7, index % 7 + 1) for index in range(count)}
    moves = dict.fromkeys(range(0, count, 2), (9,))
    assignment = TopicAssignment(UUID(int=5), replicas, moves, {})
    parts = list(TopicZnode.encoded_slices(assignment))
    assert max(map(len, parts)) < 20_000
    data = b"".join(parts)
    assert data == TopicZnode.encode(assignment)
    assert TopicZnode.decode("t", data) == assignment
    in_order = json.loads(data)["partitions"]
    assert list(in_order) == scala_map_order(map(str, range(count)))
    compact = json.dumps(json.loads(data), separators=(",", ":")).encode()
    assert data == compact, "as Jackson writes it"


def large(count: int = 9_000) -> TopicAssignment:
    replicas = {index: (index % 7, index % 7 + 1) for index in range(count)}
    return TopicAssignment(UUID(int=5), replicas, dict.fromkeys(range(count), (9,)), {0: (1,)})


def test_a_large_topic_is_decoded_in_steps() -> None:
    data = TopicZnode.encode(large())
    steps = TopicZnode.decoding("t", data)
    assert [next(steps) for _ in range(5)] == [None] * 5
    assert result_of(steps) == large()
    assert result_of(TopicZnode.decoding("t", TopicZnode.encode(large(9)))) == large(9)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('":[', '": ['),
        lambda text: text.replace('],"', '] , "'),
        lambda text: text.replace('"partitions":{', '"partitions" : {'),
        lambda text: '{"former":' + text[: text.index(',"topic_id')] + "}," + text[1:],
        lambda text: json.dumps(json.loads(text), indent=1),
    ],
)
def test_a_large_topic_that_others_wrote_is_decoded_all_the_same(change: Callable[[str], str]) -> None:
    data = change(TopicZnode.encode(large()).decode()).encode()
    assert result_of(TopicZnode.decoding("t", data)) == TopicZnode.decode("t", data) == large()


@pytest.mark.parametrize(
    ("old", "new"), [('"8000":[6,7]', '"8000":[6,x]'), ('"8000":[6,7]', '"8000":6'), ('"8000":[6,7]', '"z":[6,7]')]
)
def test_a_large_topic_that_is_damaged_is_named(old: str, new: str) -> None:
    data = TopicZnode.encode(large()).replace(old.encode(), new.encode())
    with pytest.raises(ZnodeDataError, match="/brokers/topics/t"):
        result_of(TopicZnode.decoding("t", data))


def test_config_changes_name_their_entity() -> None:
    assert ConfigChangeZnode.encode("topics/t") == b'{"version":2,"entity_path":"topics/t"}'
    for data in (
        b'{"version":2,"entity_path":"topics/t"}',
        b'{"version":1,"entity_type":"topics","entity_name":"t"}',
        b'"t"',
    ):
        assert ConfigChangeZnode.decode("/config/changes/config_change_7", data) == "topics/t"


def test_users_clients_and_addresses_are_named_in_hex() -> None:
    assert UserConfigZnode.path("Åsa +*~/.-_") == "/config/users/%C3%85sa%20%2B%2A%7E%2F.-_"
    assert UserConfigZnode.client_path("u", None) == "/config/users/u/clients/<default>"
    assert UserConfigZnode.path(DEFAULT_ENTITY) == "/config/users/%3Cdefault%3E"
    assert ClientConfigZnode.path("a b") == "/config/clients/a%20b"
    assert IpConfigZnode.path("::1") == "/config/ips/%3A%3A1"
    assert [named_entity(part) for part in ("%C3%85sa%20%2B", "<default>")] == ["Åsa +", None]


def test_settings_of_all_kinds_have_one_form() -> None:
    config, data = {"consumer_byte_rate": "1024.5"}, b'{"version":1,"config":{"consumer_byte_rate":"1024.5"}}'
    assert UserConfigZnode.encode(config) == ClientConfigZnode.encode(config) == data
    assert BrokerConfigZnode.encode(config) == IpConfigZnode.encode(config) == TopicConfigZnode.encode(config) == data
    assert UserConfigZnode.decode(UserConfigZnode.path("u"), data) == config
    assert ClientConfigZnode.decode("c", data) == IpConfigZnode.decode(None, data) == config


def test_what_tools_ask_of_the_controller() -> None:
    moved = {("b", 1): (3, 4), ("a", 0): (5,)}
    data = (
        b'{"version":1,"partitions":[{"topic":"b","partition":1,"replicas":[3,4]},'
        b'{"topic":"a","partition":0,"replicas":[5]}]}'
    )
    assert ReassignPartitionsZnode.encode(moved) == data
    assert ReassignPartitionsZnode.decode(data) == moved
    data = b'{"version":1,"partitions":[{"topic":"b","partition":1},{"topic":"a","partition":0}]}'
    assert PreferredReplicaElectionZnode.encode(moved) == data
    assert PreferredReplicaElectionZnode.decode(data) == tuple(moved)


def test_notifications() -> None:
    data = b'{"version":1,"partitions":[{"topic":"t","partition":2}]}'
    assert IsrChangeNotificationZnode.encode([("t", 2)]) == data
    assert IsrChangeNotificationZnode.decode("/isr_change_notification/isr_change_0", data) == (("t", 2),)
    data = b'{"version":1,"broker":5,"event":1}'
    assert LogDirEventNotificationZnode.encode(5) == data
    assert LogDirEventNotificationZnode.decode("/log_dir_event_notification/log_dir_event_0", data) == 5


def test_paths_of_a_group() -> None:
    assert ConsumerIdZnode.path("g", "g_host-1-ab") == "/consumers/g/ids/g_host-1-ab"
    assert PartitionOwnerZnode.path("g", "t", 3) == "/consumers/g/owners/t/3"
    assert ConsumerOffsetZnode.path("g", "t", 3) == "/consumers/g/offsets/t/3"


@pytest.mark.parametrize(
    ("pattern", "subscription", "written"),
    [
        ("static", {"b": 2, "a": 1}, '{"b":2,"a":1}'),
        ("white_list", {r'a.*|\d"/' + "\t\x1fü\x85": 4}, r'{"a.*|\\d\"\/\t\u001fü\u0085":4}'),
        ("black_list", {"x": 1}, '{"x":1}'),
    ],
)
def test_consumers_report_topics_or_a_filter(
    pattern: SubscriptionPattern, subscription: dict[str, int], written: str
) -> None:
    registration = ConsumerRegistration(subscription, pattern, 17)
    data = f'{{"version":1,"subscription":{written},"pattern":"{pattern}","timestamp":"17"}}'.encode()
    assert ConsumerIdZnode.encode(registration) == data
    assert ConsumerIdZnode.decode("/consumers/g/ids/c", data) == registration


def test_an_owner_is_a_thread() -> None:
    path = PartitionOwnerZnode.path("g", "t", 0)
    assert PartitionOwnerZnode.decode(path, PartitionOwnerZnode.encode("g_host-1-ab-0")) == "g_host-1-ab-0"
    for data in (None, b"", b"\xff"):
        with pytest.raises(ZnodeDataError, match=path):
            PartitionOwnerZnode.decode(path, data)


def test_a_kind_of_subscription_that_nobody_knows_is_refused() -> None:
    data = b'{"version":1,"subscription":{"t":1},"pattern":"grey_list","timestamp":"1"}'
    with pytest.raises(ZnodeDataError, match=r"/consumers/g/ids/c .*'grey_list'"):
        ConsumerIdZnode.decode("/consumers/g/ids/c", data)


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"{}", b'{"id":5}', b"\xff", b"[" * 100_000])
def test_bad_data_names_its_path(data: bytes | None) -> None:
    decoders = [
        ("/brokers/ids/3", lambda: BrokerIdZnode.decode(3, data)),
        ("/brokers/topics/t", lambda: TopicZnode.decode("t", data)),
        ("/brokers/topics/t/partitions/2/state", lambda: PartitionStateZnode.decode("t", 2, data)),
        ("/controller", lambda: ControllerZnode.decode(data)),
        ("/controller_epoch", lambda: ControllerEpochZnode.decode(data)),
        ("/cluster/id", lambda: ClusterIdZnode.decode(data)),
        ("/config/topics/t", lambda: TopicConfigZnode.decode("t", data)),
        ("/config/changes/c", lambda: ConfigChangeZnode.decode("/config/changes/c", data)),
        *([("/config/users/u", lambda: UserConfigZnode.decode("/config/users/u", data))] if data else []),
        ("/admin/reassign_partitions", lambda: ReassignPartitionsZnode.decode(data)),
        ("/admin/preferred_replica_election", lambda: PreferredReplicaElectionZnode.decode(data)),
        ("/isr_change", lambda: IsrChangeNotificationZnode.decode("/isr_change", data)),
        ("/log_dir_event", lambda: LogDirEventNotificationZnode.decode("/log_dir_event", data)),
        ("/consumers/g/ids/c", lambda: ConsumerIdZnode.decode("/consumers/g/ids/c", data)),
    ]
    for path, decode in decoders:
        with pytest.raises(ZnodeDataError, match=path):
            decode()
    if data:
        with pytest.raises(ZnodeDataError, match="/latest_producer_id_block"):
            ProducerIdBlockZnode.decode(data)
    else:
        assert ProducerIdBlockZnode.decode(data) is None


@pytest.mark.parametrize("number", [b"1e999", b"-Infinity", b"NaN", b"null", b'"x"', b"[]", b"9" * 5000])
def test_a_number_that_is_none_is_reported(number: bytes) -> None:
    with pytest.raises(ZnodeDataError, match="/controller"):
        ControllerZnode.decode(b'{"brokerid":' + number + b"}")
    with pytest.raises(ZnodeDataError, match="/consumers/g/ids/c"):
        ConsumerIdZnode.decode("/consumers/g/ids/c", b'{"subscription":{"t":' + number + b'},"pattern":"static"}')
