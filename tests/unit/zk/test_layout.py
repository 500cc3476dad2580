from __future__ import annotations

from uuid import UUID

import pytest

from ottla.config.listeners import Endpoint
from ottla.zk.layout import (
    BrokerIdZnode,
    BrokerRegistration,
    ClusterIdZnode,
    ConfigChangeZnode,
    ControllerEpochZnode,
    ControllerZnode,
    PartitionStateZnode,
    ProducerIdBlockZnode,
    TopicAssignment,
    TopicConfigZnode,
    TopicZnode,
    ZnodeDataError,
)

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
    assert b'"version":2' in TopicZnode.encode(TopicAssignment.of(None, {0: [1]}))


def test_a_reassignment_is_kept() -> None:
    assignment = TopicAssignment(UUID(int=5), {0: (1, 2)}, {0: (2,)}, {0: (1,)})
    assert TopicZnode.decode("t", TopicZnode.encode(assignment)) == assignment


def test_config_changes_name_their_entity() -> None:
    assert ConfigChangeZnode.encode("topics/t") == b'{"version":2,"entity_path":"topics/t"}'


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"{}", b'{"id":5}', b"\xff"])
def test_bad_data_names_its_path(data: bytes | None) -> None:
    decoders = [
        ("/brokers/ids/3", lambda: BrokerIdZnode.decode(3, data)),
        ("/brokers/topics/t", lambda: TopicZnode.decode("t", data)),
        ("/brokers/topics/t/partitions/2/state", lambda: PartitionStateZnode.decode("t", 2, data)),
        ("/controller", lambda: ControllerZnode.decode(data)),
        ("/controller_epoch", lambda: ControllerEpochZnode.decode(data)),
        ("/cluster/id", lambda: ClusterIdZnode.decode(data)),
        ("/config/topics/t", lambda: TopicConfigZnode.decode("t", data)),
    ]
    for path, decode in decoders:
        with pytest.raises(ZnodeDataError, match=path):
            decode()
    if data:
        with pytest.raises(ZnodeDataError, match="/latest_producer_id_block"):
            ProducerIdBlockZnode.decode(data)
    else:
        assert ProducerIdBlockZnode.decode(data) is None
