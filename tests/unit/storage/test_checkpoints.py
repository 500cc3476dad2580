from __future__ import annotations

import json
from uuid import UUID

import pytest

from ottla.storage.checkpoints import (
    CheckpointError,
    MetaProperties,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
)

TOPIC_ID = UUID("c0ffee00-1234-4abc-8def-0123456789ff")


def test_offsets() -> None:
    offsets = {("orders", 0): 17, ("a.b_c-d", 12): 0}
    data = encode_offsets(offsets)
    assert data == b"0\n2\norders 0 17\na.b_c-d 12 0\n"
    assert decode_offsets(data, "f") == offsets
    assert decode_offsets(encode_offsets({}), "f") == {}
    assert decode_offsets(b"", "f") == {}


@pytest.mark.parametrize(
    "bad", [b"0\n2\norders 0 17\n", b"9\n0\n", b"0", b"\xff\xfe", b"0\n1\norders x 1\n", b"0\n1\norders 1\n"]
)
def test_damaged_offsets(bad: bytes) -> None:
    with pytest.raises(CheckpointError, match="some-file: "):
        decode_offsets(bad, "some-file")


def test_partition_metadata() -> None:
    data = encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: wP_uABI0SryN7wEjRWeJ_w"
    assert decode_partition_metadata(data, "f") == TOPIC_ID
    assert decode_partition_metadata(data + b"\n", "f") == TOPIC_ID
    for bad in (b"", data[:20], data.replace(b"0\n", b"1\n"), data[:-3], b"topic_id: wP_uABI0SryN7wEjRWeJ_w"):
        with pytest.raises(CheckpointError, match="f: "):
            decode_partition_metadata(bad, "f")


def test_meta_properties() -> None:
    written = b"#\n#Thu Jan 01 00:00:00 UTC 2026\ncluster.id=abc\nversion=0\nbroker.id=3\n"
    assert decode_meta_properties(written, "f") == MetaProperties("abc", 3)
    assert decode_meta_properties(encode_meta_properties(MetaProperties("x", 0)), "f") == MetaProperties("x", 0)
    assert decode_meta_properties(encode_meta_properties(MetaProperties(None, None)), "f") == MetaProperties(None, None)
    with pytest.raises(CheckpointError, match="KRaft"):
        decode_meta_properties(b"version=1\nnode.id=3\n", "f")
    with pytest.raises(CheckpointError, match="not a number"):
        decode_meta_properties(b"version=0\nbroker.id=x\n", "f")
    with pytest.raises(CheckpointError, match="version 7 is of a newer release"):
        decode_meta_properties(b"version=7\nbroker.id=3\n", "f")
    for damaged in (b"", b"\0" * 60, b"garbage\n"):
        with pytest.raises(CheckpointError, match="no version in it, so that it is damaged"):
            decode_meta_properties(damaged, "f")


def test_clean_shutdown() -> None:
    assert json.loads(encode_clean_shutdown()) == {"version": 0, "brokerEpoch": -1}


def test_a_file_that_was_cut_within_a_number_is_damaged() -> None:
    whole = encode_offsets({("t", 1): 60})
    assert decode_offsets(whole, "f") == {("t", 1): 60}
    for length in range(1, len(whole)):
        with pytest.raises(CheckpointError, match=r"^f: "):
            decode_offsets(whole[:length], "f")
