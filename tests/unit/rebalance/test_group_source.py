"""Groups described in files."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.rebalance.group_source import BadSource, group_of


def test_members_by_name_only() -> None:
    group = group_of({"topics": {"t": 2}, "members": ["a", "b"]})
    assert [member.topics for member in group.members.values()] == [("t",), ("t",)]
    assert not group.has_owners


BAD: list[tuple[Any, str]] = [
    ([], "the description of a group must be an object, not []"),
    ({"topics": {}}, '"members" must be an object, not null'),
    ({"topics": {"t": 1}, "members": {}}, '"members" is empty; give at least one member'),
    ({"topics": {"t": -1}, "members": ["a"]}, "topic t needs its number of partitions, 0 to 1000000, not -1"),
    ({"topics": {"t": 10**12}, "members": ["a"]}, "topic t needs its number of partitions"),
    ({"topics": {"t": True}, "members": ["a"]}, "topic t needs its number of partitions"),
    ({"topics": {"t": {"partitions": 2, "racks": [["a"]]}}, "members": ["a"]}, "has 2 partitions, but racks of 1"),
    ({"topics": {"t": 1}, "members": {"a": {"topic": []}}}, "member a has the unknown field 'topic'; known are"),
    ({"topics": {"t": 1}, "members": {"a": {"topics": "t"}}}, 'the topics of member a must be an array, not "t"'),
    ({"topics": {"t": 1}, "members": {"a": {"owned": {"t": [1]}}}}, "member a owns partition 1 of t, which has 1"),
    ({"topics": {"t": 1}, "members": {"a": {"owned": {"u": [0]}}}}, "member a owns partition 0 of u, which has 0"),
    ({"topics": {"t": 1}, "members": {"a": {"owned": {"t": [0]}}, "b": {"owned": {"t": [0]}}}}, "has one owner"),
    ({"topics": {"t": 1}, "members": [1]}, "the name of a member must be text, not 1"),
]


@pytest.mark.parametrize(("value", "told"), BAD)
def test_descriptions_that_cannot_be(value: Any, told: str) -> None:
    with pytest.raises(BadSource) as refused:
        group_of(value)
    assert told in str(refused.value)
