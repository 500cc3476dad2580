"""Who reads which partition: what is counted, and from when on."""

from __future__ import annotations

import pytest

from ottla.rebalance.designs.consumption import Consumption, Reading

pytestmark = pytest.mark.spec("Z8")


def test_time_in_which_nobody_reads() -> None:
    account = Consumption(2)
    account.claimed("a", [0], 100)
    account.claimed("b", [1], 150)
    assert account.unread_ms == 2 * 100 + 50
    assert account.is_whole
    account.released("b", [1], 200)
    account.claimed("a", [1], 260)
    assert account.unread_ms == 250 + 60


def test_time_in_which_two_read() -> None:
    account = Consumption(1)
    account.claimed("a", [0], 0)
    account.claimed("b", [0], 10)
    assert not account.is_whole
    account.claimed("c", [0], 20)
    account.released("a", [0], 50)
    account.released("c", [0], 60)
    assert account.is_whole
    assert account.doubled_ms == 50
    assert account.unread_ms == 0


def test_only_what_comes_after_the_beginning_is_counted() -> None:
    account = Consumption(1)
    account.begin(1_000)
    account.claimed("a", [0], 1_300)
    assert account.unread_ms == 300
    assert account.longest_unread_ms == 300
    account.released("a", [0], 2_000)
    account.end(2_700)
    assert account.longest_unread_ms == 700


def test_who_stands_still_reads_nothing_and_goes_on_where_it_was() -> None:
    account = Consumption(1)
    account.claimed("a", [0], 0)
    account.halted("a", 100)
    account.claimed("b", [0], 400)
    assert account.unread_ms == 300
    account.resumed("a", 500)
    account.released("a", [0], 520)
    assert account.doubled_ms == 20


def test_what_is_released_while_it_stands_still_is_not_read_afterwards() -> None:
    account = Consumption(1)
    account.claimed("a", [0], 0)
    account.halted("a", 100)
    account.released("a", [0], 110)
    account.resumed("a", 200)
    account.end(300)
    assert account.readings == [Reading(0, "a", 0, 100)]
    assert account.unread_ms == 200


def test_who_is_gone_reads_nothing() -> None:
    account = Consumption(2)
    account.claimed("a", [0, 1], 0)
    account.gone("a", 50)
    account.end(60)
    assert account.readings == [Reading(0, "a", 0, 50), Reading(1, "a", 0, 50)]
    assert account.unread_ms == 20


def test_new_partitions_are_read_by_nobody() -> None:
    account = Consumption(1)
    account.claimed("a", [0], 0)
    account.grown(3, 100)
    account.claimed("a", [1, 2], 150)
    assert account.unread_ms == 100
    assert account.changed_ms == 150
    assert account.is_whole


def test_claiming_what_one_has_changes_nothing() -> None:
    account = Consumption(1)
    account.claimed("a", [0], 0)
    account.claimed("a", [0], 10)
    assert account.changed_ms == 0
    account.released("a", [0, 5], 20)
    account.end(20)
    assert account.readings == [Reading(0, "a", 0, 20)]


def test_who_has_lost_a_partition_reads_it_until_it_knows() -> None:
    consumption = Consumption(2)
    consumption.begin(0)
    consumption.claimed("m1", [0, 1], 0)
    consumption.lost("m1", 1_000)
    consumption.claimed("m2", [0], 2_000)
    consumption.halted("m1", 3_000)
    consumption.resumed("m1", 5_000)
    consumption.released("m1", [0, 1], 6_000)
    consumption.claimed("m1", [1], 7_000)
    consumption.end(9_000)
    assert consumption.stale_ms == 2 * (2_000 + 1_000), "two partitions, but for the time that it stood still"
    assert consumption.doubled_ms == 1_000 + 1_000
