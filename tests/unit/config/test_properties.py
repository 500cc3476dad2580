from __future__ import annotations

import pytest

from ottla.config.properties import PropertiesError, parse_properties
from support.properties_file import format_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a\n! b\n\n  \n", {}),
        ("a=1\nb:2\nc 3\nd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("  a  =  b c  ", {"a": "b c  "}),
        ("a = = b", {"a": "= b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\n", {"a": "one"}),
        ("a=back\\\\\nb=2", {"a": "back\\", "b": "2"}),
        ("a\\=b=c\\:d", {"a=b": "c:d"}),
        ("a\\ b c", {"a b": "c"}),
        ("a=\\t\\n\\u0041\\q", {"a": "\t\nAq"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("#a \\\nb=1", {"b": "1"}),
        ("=v", {"": "v"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_the_format_is_javas(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=1\nb=\\u12", "x=1\ny=\\uzzzz"])
def test_a_bad_escape_names_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match="line 2"):
        parse_properties(text)


def test_what_is_written_reads_back() -> None:
    properties = {"a b": " x=1", "c:d": "line\nbreak\\", "e": "#!"}
    assert parse_properties(format_properties(properties)) == properties
