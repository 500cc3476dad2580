"""The framing of schema registries."""

from __future__ import annotations

import pytest

from ottla.decoding.framing import encode_indexes, take_indexes


@pytest.mark.parametrize("path", [(0,), (1,), (2, 0), (0, 0, 5)])
def test_indexes_of_messages(path: tuple[int, ...]) -> None:
    assert take_indexes(encode_indexes(path) + b"body") == (path, len(encode_indexes(path)))


@pytest.mark.parametrize("body", [b"", b"\x02", b"\x01\x00", b"\xff" * 12, b"\xd0\x0f" + b"\x00" * 2_000, b"\x02\x01"])
def test_no_indexes(body: bytes) -> None:
    assert take_indexes(body) is None
