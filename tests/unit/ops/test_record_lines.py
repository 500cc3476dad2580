"""Lines of a stream, and records of lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import InvalidArgumentError
from ottla.inspection.texts import TextFormat
from ottla.ops import record_lines
from ottla.ops.record_lines import RecordFormat, lines_of

pytestmark = pytest.mark.spec("U2")


class Arriving:
    """A stream whose bytes arrive in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def read1(self, size: int, /) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


def test_lines_are_there_when_they_have_arrived() -> None:
    assert list(lines_of(Arriving(b"a\nb", b"c", b"\n\n", b"d"))) == [[b"a"], [b"bc", b""], [b"d"]]
    assert list(lines_of(Arriving())) == []


@given(st.lists(st.binary(min_size=1, max_size=8)))
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    whole = b"".join(pieces).split(b"\n")
    found = [line for lines in lines_of(Arriving(*pieces)) for line in lines]
    assert found == (whole if whole[-1] else whole[:-1])


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_lines, "MOST_LINE_BYTES", 5)
    lines = lines_of(Arriving(b"ab\nabc", b"def"))
    assert next(lines) == [b"ab"]
    with pytest.raises(InvalidArgumentError, match="a line has more than 5 bytes"):
        next(lines)


def test_a_line_is_a_value() -> None:
    lines = RecordFormat("t", key=b"k", null=b"NULL", partition=3, headers=(("h", b"x"),))
    assert lines.record(b"a: b") == ("t", b"a: b", b"k", 3, None, (("h", b"x"),))
    assert lines.record(b"NULL").value is None
    assert lines.record(b"").value == b""


def test_a_line_is_a_key_and_a_value() -> None:
    lines = RecordFormat("t", key_separator=b"::", null=b"", key=b"k", value_encoding=TextFormat.HEX)
    assert lines.record(b"a::00ff")[1:3] == (b"\x00\xff", b"a")
    assert lines.record(b"::0a")[1:3] == (b"\n", None)
    assert lines.record(b"a::")[1:3] == (None, b"a")
    with pytest.raises(InvalidArgumentError, match="no key separator '::' in it"):
        lines.record(b"a:b")
    with pytest.raises(InvalidArgumentError, match="'a::' is not hexadecimal"):
        lines.record(b"a::a::")


def test_a_line_is_a_row() -> None:
    lines = RecordFormat("t", rows=True, key=b"k", headers=(("h", b"x"),), partition=1)
    record = lines.record(b'{"value": "v", "partition": 5, "headers": [{"key": "a", "value": null}]}')
    assert record == ("t", b"v", b"k", 1, None, [("h", b"x"), ("a", None)])
    kept = RecordFormat("t", rows=True, keep_partition=True)
    assert kept.record(b'{"value": "v", "partition": 5}').partition == 5
