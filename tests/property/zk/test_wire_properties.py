"""Bytes of any kind are a request or a JuteError, and cost no more memory than there are bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.zk import wire
from ottla.zk.errors import ZkError
from ottla.zk.tree import Set
from ottla.zk.wire import Op

DECODERS: list[Callable[[bytes, int, int], object]] = [
    wire.request_header,
    wire.connect_request,
    wire.path_and_watch,
    wire.path_only,
    wire.multi,
    wire.multi_read,
    wire.path_and_number,
    wire.auth_packet,
    partial(wire.watches_to_set, with_persistent=False),
    partial(wire.watches_to_set, with_persistent=True),
    *(partial(wire.operation, op) for op in (Op.CREATE, Op.SET_DATA, Op.DELETE, Op.CHECK, Op.SET_ACL)),
]
LENGTHS = st.sampled_from([-2, -1, 0, 1, 3, 100, 2**31 - 1]).map(lambda length: struct.pack(">i", length))
PARTS = st.one_of(LENGTHS, st.binary(max_size=12), st.sampled_from([b"/a", b"\0", b"\1", "/ü".encode()]))


@pytest.mark.parametrize("decode", DECODERS)
@given(st.lists(PARTS, max_size=12), st.integers(0, 4), st.integers(0, 4))
def test_any_bytes(decode: Callable[[bytes, int, int], object], parts: list[bytes], before: int, behind: int) -> None:
    content = b"".join(parts)
    framed = b"\xff" * before + content + b"\xff" * behind
    outcomes = []
    for data, start, end in ((content, 0, len(content)), (framed, before, before + len(content))):
        try:
            outcomes.append(repr(decode(data, start, end)))
        except (wire.JuteError, ZkError) as refused:
            outcomes.append(type(refused).__name__)
    assert outcomes[0] == outcomes[1], "what lies around a frame is none of its business"


@given(st.text(max_size=20), st.none() | st.binary(max_size=40), st.integers(0, 3))
def test_creations(path: str, data: bytes | None, flags: int) -> None:
    try:
        encoded = wire.string_body(path)
    except UnicodeEncodeError:
        return
    encoded += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    encoded += wire.acl_body(wire.OPEN_ACL) + struct.pack(">i", flags)
    made = wire.operation(Op.CREATE, encoded, 0, len(encoded))
    assert made == (path, data, flags in (1, 3), flags in (2, 3), wire.OPEN_ACL)
    assert made[4] is wire.OPEN_ACL
    for end in range(len(encoded)):
        with pytest.raises(wire.JuteError):
            wire.operation(Op.CREATE, encoded, 0, end)


@given(
    st.text(max_size=20), st.none() | st.binary(max_size=40), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=9)
)
def test_changes_of_data(path: str, data: bytes | None, version: int, behind: bytes) -> None:
    try:
        encoded = wire.string_body(path)
    except UnicodeEncodeError:
        return
    encoded += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    encoded += struct.pack(">i", version)
    made = wire.operation(Op.SET_DATA, behind + encoded + behind, len(behind), len(behind) + len(encoded))
    assert (type(made), made) == (Set, (path, data, version))
    for end in range(len(encoded)):
        with pytest.raises(wire.JuteError):
            wire.operation(Op.SET_DATA, encoded, 0, end)
