"""Templates of records, with kcat's letters."""

from __future__ import annotations

import re

import pytest

from ottla.client.errors import InvalidArgumentError
from ottla.inspection.texts import TextFormat
from ottla.ops.record_templates import separator, template
from ottla.records.batch import TimestampType
from ottla.records.consumed import ConsumerRecord
from ottla.records.headers import Headers

pytestmark = pytest.mark.spec("U2")

AUTO, HEX, JSON, INTEGER = TextFormat.AUTO, TextFormat.HEX, TextFormat.JSON, TextFormat.INTEGER
HEADERS = Headers([("a", b"1"), ("b", None)])
RECORD = ConsumerRecord("t", 2, 7, 1_000, TimestampType.CREATE_TIME, b"k", b"\x00\xff", HEADERS, 0, 1, 2)
TOMBSTONE = RECORD._replace(value=None, serialized_value_size=-1)


def test_all_letters() -> None:
    show = template(r"%t %p %o %T %k %s [%h] %K %S 100%% \x41\t\\\n", b"NULL", AUTO, AUTO)
    assert show(RECORD) == b"t 2 7 1000 k \x00\xff [a=1,b=NULL] 1 2 100% A\t\\\n"
    assert template("%s %S", b"NULL", AUTO, AUTO)(TOMBSTONE) == b"NULL -1"
    assert template("é", b"", AUTO, AUTO)(RECORD) == "é".encode()


def test_formats_of_keys_and_values() -> None:
    assert template("%k %s", b"", HEX, INTEGER)(RECORD) == b"6b 255"
    of_json = RECORD._replace(value=b'{ "a": 1 }')
    assert template("%s", b"", AUTO, JSON)(of_json) == b'{"a":1}'
    assert template("%s", b"", AUTO, JSON)(RECORD) == b"00ff"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%x", "%x is not a field of a record; there are %t (topic), %p (partition)"),
        ("%", "% is not a field"),
        (r"\q", r"\q is not an escape"),
        (r"\x4", r"\x is not an escape"),
        ("\\", "\\ is not an escape"),
    ],
)
def test_what_is_wrong_with_a_template_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        template(text, b"", AUTO, AUTO)


def test_separators() -> None:
    assert separator(r"a\t\x00é") == "a\t\0é".encode()
    with pytest.raises(InvalidArgumentError, match="not an escape"):
        separator("\\")
