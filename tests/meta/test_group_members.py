"""The checks of tests with members of many makes can fail: they read what members tell as it is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.group_members import FOREVER, GroupMember, Ownership, double_owners, skipped


class Told(GroupMember):
    """A member whose lines are given."""

    def __init__(self, folder: Path, name: str, *events: tuple[str, float, dict[str, Any]]) -> None:
        self.name = name
        self.gone_at = FOREVER
        self.out = folder / name
        lines = [json.dumps({"event": event, "at": at, **more}) for event, at, more in events]
        self.out.write_text("\n".join([*lines, '{"half a li']))


def owning(*partitions: int) -> dict[str, Any]:
    return {"partitions": list(partitions)}


def test_two_owners_at_once_are_found(tmp_path: Path) -> None:
    one = Told(tmp_path, "one", ("assigned", 1.0, owning(0, 1)), ("revoked", 3.0, owning(1)))
    other = Told(tmp_path, "other", ("assigned", 2.0, owning(1)))
    assert one.owned() == {0}
    assert double_owners([one, other]) == [(Ownership("one", 1, 1.0, 3.0), Ownership("other", 1, 2.0, FOREVER))]
    later = Told(tmp_path, "later", ("assigned", 3.0, owning(1)))
    assert double_owners([one, later]) == []


def test_who_is_gone_owns_nothing_from_then_on(tmp_path: Path) -> None:
    frozen = Told(tmp_path, "one", ("assigned", 1.0, owning(0)), ("lost", 9.0, owning(0)), ("assigned", 9.5, owning(1)))
    frozen.gone_at = 4.0
    other = Told(tmp_path, "other", ("assigned", 5.0, owning(0)), ("closed", 9.2, {}))
    assert double_owners([frozen, other]) == []
    assert Ownership("one", 1, 9.5, FOREVER) in frozen.ownerships()


def test_records_that_nobody_consumed_are_found(tmp_path: Path) -> None:
    def some(partition: int, first: int, last: int) -> tuple[str, float, dict[str, Any]]:
        return ("records", 1.0, {"partition": partition, "first": first, "last": last})

    members = [Told(tmp_path, "one", some(0, 0, 4), some(1, 0, 1)), Told(tmp_path, "other", some(0, 3, 8))]
    assert skipped(members, {0: 9, 1: 2}) == {}
    assert skipped(members, {0: 9, 1: 4}) == {1: [2, 3]}
