"""What a broker says before it says anything else: versions, unknown requests, requests from the future."""

from __future__ import annotations

import struct

import pytest

from interop.both_brokers import BrokerPair, assert_alike
from interop.raw import RawConnection, framed
from interop.wire_json import Json

pytestmark = [pytest.mark.needs_kafka]

NONE = 0
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42

PRODUCE = 0
#: All that this broker serves so far, by the names of Kafka's definitions.
SERVED = {
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup",
    "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "ApiVersions", "CreateTopics",
    "DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch", "DescribeConfigs", "CreatePartitions",
    "DeleteGroups", "DescribeCluster", "AlterConfigs", "IncrementalAlterConfigs", "DescribeLogDirs",
    "OffsetDelete", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition",
    "AllocateProducerIds", "ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments",
    "DescribeProducers", "AlterReplicaLogDirs", "SaslHandshake", "SaslAuthenticate", "DescribeAcls", "CreateAcls",
    "DeleteAcls", "DescribeUserScramCredentials", "AlterUserScramCredentials", "DescribeClientQuotas",
    "AlterClientQuotas",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
    "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit", "DescribeTransactions",
    "ListTransactions",
}  # fmt: skip
#: Apache Kafka has it with KRaft only.
BEYOND = {"UnregisterBroker": (0, 0)}


def ranges(answer: Json) -> dict[int, tuple[int, int]]:
    return {one["api_key"]: (one["min_version"], one["max_version"]) for one in answer["api_keys"]}


@pytest.mark.parametrize("version", range(5))
@pytest.mark.usefixtures("ottla_only")
def test_versions_are_advertised_as_apache_kafka_does(pair: BrokerPair, version: int) -> None:
    answers = pair.ask_each("ApiVersions", version, client_software_name="raw", client_software_version="1")
    known = pair.ours.definitions.keys
    expected = {known[key]: span for key, span in ranges(answers.theirs).items() if known[key] in SERVED}
    assert {known[key]: span for key, span in ranges(answers.ours).items()} == expected | BEYOND
    assert expected.keys() == SERVED
    assert_alike(answers.ours, answers.theirs, "ApiVersions", ignore={"api_keys"})
    assert answers.ours["error_code"] == NONE


@pytest.mark.parametrize("version", [99, 5, -1])
def test_versions_unknown_are_answered_in_version_0(raw: RawConnection, version: int) -> None:
    raw.correlation_id = 7
    raw.socket.sendall(framed(struct.pack(">hhih", 18, version, 7, -1) + b"\0" + b"whatever the future brings"))
    answer = raw.receive("ApiVersions", 0)
    assert answer["error_code"] == UNSUPPORTED_VERSION
    assert answer["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": 4}]
    # The connection continues, so that the client can ask again.
    assert raw.request("ApiVersions", 3, client_software_name="x", client_software_version="1")["error_code"] == NONE


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("raw", ""), ("bad name!", "1"), ("raw", "-1-")])
def test_software_names_are_checked(raw: RawConnection, name: str, version: str) -> None:
    answer = raw.request("ApiVersions", 3, client_software_name=name, client_software_version=version)
    assert answer["error_code"] == INVALID_REQUEST


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(999, 0), (-1, 0), (32767, 0), (3, 99), (3, -1), (0, 99), (12, 5), (1, 18)],
    ids=lambda number: str(number).replace("-", "minus"),
)
def test_requests_that_cannot_be_understood_close_the_connection(
    raw: RawConnection, api_key: int, version: int
) -> None:
    raw.socket.sendall(framed(struct.pack(">hhih", api_key, version, 1, -1) + b"\0" * 20))
    assert raw.is_closed_by_broker()


def test_a_tag_from_the_future_is_skipped(raw: RawConnection) -> None:
    plain = raw.encode("Metadata", 12, {"topics": []})
    # The last byte of the request counts its tags: none. Now there is one, of number 1000 and three bytes.
    raw.socket.sendall(framed(plain[4:-1] + b"\x01\xe8\x07\x03abc"))
    assert raw.receive("Metadata", 12)["brokers"][0]["node_id"] == 1


def test_a_tag_in_the_header_is_skipped(raw: RawConnection) -> None:
    plain = raw.encode("Metadata", 12, {"topics": []}, client_id="abc")
    header = struct.pack(">hhih", 3, 12, raw.correlation_id, 3) + b"abc"
    assert plain[4:].startswith(header + b"\0")
    raw.socket.sendall(framed(header + b"\x01\xe8\x07\x03abc" + plain[4 + len(header) + 1 :]))
    assert raw.receive("Metadata", 12)["brokers"][0]["node_id"] == 1


def test_answers_come_in_the_order_of_the_requests(raw: RawConnection) -> None:
    frames = [raw.encode("ApiVersions", 0, {}) for _ in range(50)]
    raw.socket.sendall(b"".join(frames))
    told = [struct.unpack_from(">i", raw.receive_frame())[0] for _ in frames]
    assert told == list(range(1, 51))


def test_a_request_may_arrive_byte_by_byte(raw: RawConnection) -> None:
    for byte in raw.encode("ApiVersions", 0, {}):
        raw.socket.sendall(bytes([byte]))
    assert raw.receive("ApiVersions", 0)["error_code"] == NONE


def test_trailing_bytes_behind_a_request_are_ignored(raw: RawConnection) -> None:
    raw.socket.sendall(framed(raw.encode("Metadata", 4, {"topics": []})[4:] + b"more"))
    assert raw.receive("Metadata", 4)["brokers"][0]["node_id"] == 1
