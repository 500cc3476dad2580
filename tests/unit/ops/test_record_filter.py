"""JMESPath filters of records."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.errors import InvalidArgumentError
from ottla.ops.record_filter import RecordFilter
from ottla.records.batch import TimestampType
from ottla.records.consumed import ConsumerRecord
from ottla.records.headers import Headers

pytestmark = pytest.mark.spec("U2")

HEADERS = Headers([("source", b"web"), ("source", b"shop"), ("none", None)])
VALUE = b'{"city": "Oslo", "count": 3, "tags": ["a"], "zero": 0}'
RECORD: ConsumerRecord[Any, Any] = ConsumerRecord(
    "t", 2, 7, 1_000, TimestampType.CREATE_TIME, b"42", VALUE, HEADERS, 0, 2, len(VALUE)
)


def matches(expression: str, record: ConsumerRecord[Any, Any] = RECORD) -> bool:
    def fail(_record: object, problem: str) -> None:
        raise AssertionError(problem)

    return RecordFilter(expression, fail).matches(record)


@pytest.mark.parametrize(
    "expression",
    [
        "value.city == 'Oslo'",
        "value.count > `2` && offset >= `7`",
        "key == '42'",
        "headers.source == 'shop'",
        "value.zero",
        "contains(value.tags, 'a')",
        "value.tags[?@ == 'a'] | [0]",
        "topic == 't' && partition == `2` && timestamp < `2000`",
        "!(headers.none)",
        "max_by([value], &count).city == 'Oslo'",
    ],
)
def test_true(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize(
    "expression", ["value.town", "value.count > `3`", "value.tags[?@ == 'b']", "key == `42`", '`""`']
)
def test_false(expression: str) -> None:
    assert not matches(expression)


def test_what_is_not_json_is_text() -> None:
    assert matches("value == 'a\\xff'", RECORD._replace(value=b"a\xff"))
    assert matches("value == `null` && key == `null`", RECORD._replace(key=None, value=None))
    assert matches("key.id == `1`", RECORD._replace(key=b' {"id": 1}'))


def test_the_first_record_of_which_it_cannot_be_computed_is_reported() -> None:
    reported = []
    found = RecordFilter("contains(value.city, 'O')", lambda record, problem: reported.append((record.offset, problem)))
    text = RECORD._replace(value=b"text", offset=8)
    assert [found.matches(each) for each in (text, RECORD, text._replace(offset=9))] == [False, True, False]
    ((offset, problem),) = reported
    assert offset == 8
    assert "contains()" in problem


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("value.count > 3", "value.count > 3: character 15, '3'"),
        ("value.city =", "character 12, '='"),
        ("value.", "character 7, 'its end'"),
        ("key == 'a", 'character 8, "\'a"'),
        ("", "cannot be empty"),
        ("vlaue.count", "character 1, 'vlaue.count': vlaue is not a field of a record, which has key, value"),
        ("value.a && offest > `1`", "character 12, 'offest > `1`': offest is not"),
        ("startswith(key, 'a')", "JMESPath has no function startswith; it has abs, avg"),
        ("contains(key)", "character 1, 'contains(key)': contains takes 2 arguments, not 1"),
        ("(" * 5000, "nested too deeply"),
    ],
)
def test_a_wrong_expression_is_refused_with_its_place(expression: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        matches(expression)
    assert message in str(refused.value)
