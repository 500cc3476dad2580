from __future__ import annotations

import json
import struct

import pytest

from ottla.groups.records import GroupMetadataValue, GroupRecord, OffsetRecord, StoredOffset, encode_record
from ottla.inspection.internal_topics import Decoder, decode_internal, decoder_for
from ottla.txn.records import TransactionLogKey, TransactionLogValue, TransactionPartitions
from ottla.wire.codec import encode

pytestmark = pytest.mark.spec("G12")


def test_topics_have_their_decoders() -> None:
    assert decoder_for("__consumer_offsets") is Decoder.OFFSETS
    assert decoder_for("__transaction_state") is Decoder.TRANSACTIONS
    assert decoder_for("__ottla_rebalances") is Decoder.REBALANCES
    assert decoder_for("orders") is decoder_for(None) is Decoder.NONE


def test_committed_offsets() -> None:
    key, value = encode_record(OffsetRecord("g", "t", 3, StoredOffset(17, 2, "so far", 1_000)))
    fields = decode_internal(Decoder.OFFSETS, key, value)
    assert fields == {
        "kind": "offset",
        "group": "g",
        "topic": "t",
        "partition": 3,
        "committed_offset": 17,
        "leader_epoch": 2,
        "metadata": "so far",
        "commit_timestamp": 1_000,
    }
    assert decode_internal(Decoder.OFFSETS, key, None)["tombstone"] is True


def test_groups() -> None:
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m", members=[])
    fields = decode_internal(Decoder.OFFSETS, *encode_record(GroupRecord("g", value)))
    assert (fields["kind"], fields["generation"], fields["protocol"], fields["members"]) == ("group", 4, "range", [])


def test_records_of_the_newer_protocol_are_named() -> None:
    assert decode_internal(Decoder.OFFSETS, b"\x00\x03rest", b"")["kind"] == "ConsumerGroupMetadata"


@pytest.mark.parametrize("version", [0, 1])
def test_transactions(version: int) -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=2,
        transaction_partitions=[TransactionPartitions(topic="t", partition_ids=[0, 5])],
        transaction_last_update_timestamp_ms=11,
        transaction_start_timestamp_ms=10,
    )
    key = struct.pack(">h", 0) + encode(TransactionLogKey(transactional_id="mine"), 0)
    fields = decode_internal(Decoder.TRANSACTIONS, key, struct.pack(">h", version) + encode(value, version))
    assert (fields["transactional_id"], fields["state"], fields["partitions"]) == (
        "mine",
        "PrepareCommit",
        {"t": [0, 5]},
    )
    assert decode_internal(Decoder.TRANSACTIONS, key, None)["tombstone"] is True


def test_evidence() -> None:
    fields = decode_internal(Decoder.REBALANCES, b"g", json.dumps({"generation": 2}).encode())
    assert fields == {"kind": "rebalance", "group": "g", "evidence": {"generation": 2}}


@pytest.mark.parametrize("decoder", [Decoder.OFFSETS, Decoder.TRANSACTIONS, Decoder.REBALANCES])
@pytest.mark.parametrize(
    "key", [None, b"", b"\x00", b"\x00\x00", b"\x00\x01\x7f\xff", b"\xff\xff", b"\x00\x02\x00\x01\xff"]
)
@pytest.mark.parametrize("value", [None, b"", b"\x00", b"\x00\x63", b"\x00\x00\xff", b"[" * 100_000])
def test_anything_else_is_a_problem_and_no_exception(decoder: Decoder, key: bytes | None, value: bytes | None) -> None:
    assert decode_internal(decoder, key, value)
