"""The checker of histories: each broken promise is found, and nothing is found in a history that kept them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.cluster_history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    BrokenPromise,
    CommitSeen,
    Committed,
    EndSeen,
    Event,
    GaveUp,
    GroupDisturbed,
    GroupSettled,
    Positioned,
    Producing,
    Read,
    RecordSent,
    ReplicaLog,
    Took,
    acknowledged_count,
    describe,
    violations,
)

pytestmark = pytest.mark.spec("R3", "R5")

PLACE = ("orders", 0)
OTHER = ("orders", 1)
RECORDS = 6


def well() -> list[Event]:
    """A producer sends, all is acknowledged, read, committed, owned by one, and in the logs of both replicas."""
    events: list[Event] = [Producing(0.0, "p"), Producing(0.0, "careless", all_replicas=False, idempotent=False)]
    events += [RecordSent(1.0 + number, "p", PLACE, number) for number in range(RECORDS)]
    events += [Acknowledged(10.0 + number, "p", PLACE, number, number) for number in range(RECORDS)]
    events += [Positioned(20.0, "c", PLACE, 0)]
    events += [Read(21.0 + number, "c", PLACE, number, ("p", number)) for number in range(RECORDS)]
    events += [EndSeen(30.0, "o", PLACE, 3, 29.0), EndSeen(32.0, "o", PLACE, 6, 31.0)]
    events += [Took(33.0, "g", "a", (PLACE,)), Took(33.0, "g", "b", (OTHER,)), GroupSettled(34.0, "g", (PLACE, OTHER))]
    events += [Committed(36.0, "g", PLACE, 3, 35.0), Committed(38.0, "g", PLACE, 5, 37.0)]
    events += [CommitSeen(40.0, "g", PLACE, 5, 39.0)]
    return events + logs()


def logs(**changes: object) -> list[Event]:
    """Both replicas, equal; those of the first partition with changes in what broker 1, the leader, holds."""
    records = {number: ("p", number) for number in range(RECORDS)}
    leader = ReplicaLog(50.0, PLACE, 1, leads=True, start=0, end=RECORDS, records=records)._replace(**changes)
    follower = leader._replace(broker=2, leads=False)
    return [leader, follower, ReplicaLog(50.0, OTHER, 1, leads=True, start=0, end=0, records={})]


def kinds(events: list[Event]) -> set[BrokenPromise]:
    return {each.kind for each in violations(events)}


def with_log(records: dict[int, tuple[str, int]]) -> list[Event]:
    """The history with another content of the log."""
    return well()[:-3] + logs(records=records, end=max(records) + 1)


def test_a_history_that_kept_all_promises() -> None:
    assert violations(well()) == []
    assert acknowledged_count(well(), 10.0, 13.0) == 3


def test_an_acknowledged_record_that_is_lost() -> None:
    kept = {number: ("p", number) for number in range(RECORDS - 1)}
    found = violations(with_log(kept))
    assert {each.kind for each in found} == {BrokenPromise.LOST, BrokenPromise.LOST_READ}
    assert "p#5" in describe(found)
    assert "orders-0" in describe(found)


def test_an_acknowledgement_that_does_not_say_where_the_record_is() -> None:
    events = well()
    events[2:2] = [RecordSent(0.5, "p", PLACE, 9), Acknowledged(0.6, "p", PLACE, 9, UNKNOWN_OFFSET)]
    assert kinds(events) == {BrokenPromise.LOST}
    records = {number: ("p", number) for number in range(RECORDS)} | {RECORDS: ("p", 9)}
    assert violations(events[:-3] + logs(records=records, end=RECORDS + 1)) == []


def test_a_log_that_was_not_read_proves_nothing() -> None:
    assert BrokenPromise.LOST in kinds(well()[:-3])


def test_records_below_the_start_of_the_log_were_deleted_by_retention() -> None:
    kept = {number: ("p", number) for number in range(3, RECORDS)}
    assert violations(well()[:-3] + logs(records=kept, start=3)) == []


def test_what_acks_1_acknowledged_may_be_lost_and_twice_and_overwritten() -> None:
    events = well()
    events[2:2] = [RecordSent(0.5, "careless", PLACE, 0), Acknowledged(0.6, "careless", PLACE, 0, 2)]
    events[2:2] = [RecordSent(0.5, "careless", PLACE, 1)]
    records = {number: ("p", number) for number in range(RECORDS)} | {6: ("careless", 1), 7: ("careless", 1)}
    assert violations(events[:-3] + logs(records=records, end=8)) == []


def test_records_out_of_order() -> None:
    # Nothing was acknowledged or read yet: the order in the log alone is wrong.
    events = [each for each in well()[:-3] if isinstance(each, Producing | RecordSent)]
    events += logs(records={0: ("p", 1), 1: ("p", 0), 2: ("p", 2)}, end=3)
    assert kinds(events) == {BrokenPromise.REORDERED}


def test_a_record_twice() -> None:
    records = {number: ("p", number) for number in range(RECORDS)} | {RECORDS: ("p", 3)}
    assert kinds(with_log(records)) == {BrokenPromise.DUPLICATE}


@pytest.mark.parametrize(
    ("again", "found"),
    [
        ((7, 0), {BrokenPromise.DUPLICATE}),
        ((7, 1), set()),
        ((8, 1), {BrokenPromise.DUPLICATE}),
    ],
    ids=["the same epoch", "a higher epoch of the producer", "another producer id"],
)
def test_a_record_that_the_client_sent_anew(again: tuple[int, int], found: set[BrokenPromise]) -> None:
    records = {number: ("p", number) for number in range(RECORDS)} | {RECORDS: ("p", 3)}
    writers = dict.fromkeys(range(RECORDS), (7, 0)) | {RECORDS: again}
    assert kinds(well()[:-3] + logs(records=records, end=RECORDS + 1, writers=writers)) == found


def test_a_record_that_nobody_sent() -> None:
    records = {number: ("p", number) for number in range(RECORDS + 1)}
    assert kinds(with_log(records)) == {BrokenPromise.INVENTED}


@pytest.mark.parametrize(
    "odd",
    [Read(49.0, "d", PLACE, 2, ("p", 4)), Acknowledged(49.0, "p", PLACE, 4, 2)],
    ids=["read", "acknowledged"],
)
def test_an_offset_with_two_values(odd: Event) -> None:
    events = well()
    events.insert(-3, odd)
    found = violations(events)
    assert {each.kind for each in found} == {BrokenPromise.TWO_VALUES}
    assert "p#4" in found[0].what


def test_a_log_with_another_value_than_was_acknowledged() -> None:
    records = {number: ("p", number) for number in range(RECORDS)} | {2: ("p", 7)}
    assert BrokenPromise.TWO_VALUES in kinds(with_log(records))


def test_a_consumer_reads_backwards() -> None:
    events = well()
    events.insert(-3, Read(48.0, "c", PLACE, 3, ("p", 3)))
    assert kinds(events) == {BrokenPromise.READ_BACK}
    events.insert(-4, Positioned(47.0, "c", PLACE, 3))
    assert kinds(events) == set()


def test_a_consumer_skips_what_the_log_holds() -> None:
    events = [each for each in well() if not (isinstance(each, Read) and each.offset == 2)]
    assert kinds(events) == {BrokenPromise.SKIPPED}
    # An offset without a record, as a compacted log has it, is not skipped.
    records = {number: ("p", number) for number in range(RECORDS) if number != 2}
    events = [each for each in events[:-3] if not (isinstance(each, Acknowledged) and each.offset == 2)]
    assert kinds(events + logs(records=records)) == set()


def test_a_consumer_that_begins_behind_the_first_record_it_was_to_read() -> None:
    events = [each for each in well() if not (isinstance(each, Read) and each.offset == 0)]
    assert kinds(events) == {BrokenPromise.SKIPPED}


def test_an_end_offset_that_goes_back() -> None:
    events = well()
    events.insert(-3, EndSeen(45.0, "o", PLACE, 5, 44.0))
    assert kinds(events) == {BrokenPromise.END_BACK}


@pytest.mark.parametrize(
    "fine",
    [EndSeen(45.0, "o", PLACE, 5, 30.5), EndSeen(45.0, "someone else", PLACE, 5, 44.0)],
    ids=["asked before the other was known", "another client, of an older leader"],
)
def test_ends_that_may_be_lower(fine: Event) -> None:
    events = well()
    events.insert(-3, fine)
    assert kinds(events) == set()


def test_replicas_that_differ() -> None:
    events = well()
    [follower] = [each for each in events if isinstance(each, ReplicaLog) and not each.leads]
    shorter = follower._replace(end=RECORDS - 1, records={at: ("p", at) for at in range(RECORDS - 1)})
    events[events.index(follower)] = shorter
    found = violations(events)
    assert {each.kind for each in found} == {BrokenPromise.REPLICAS_DIFFER}
    assert "nothing on 2, p#5 on its leader 1" in found[0].what
    events[events.index(shorter)] = follower._replace(records={**follower.records, 1: ("p", 4)})
    assert kinds(events) == {BrokenPromise.REPLICAS_DIFFER}


def settled(*more: Event) -> list[Event]:
    events = well()
    events[-3:-3] = more
    return events


def test_two_owners_of_a_settled_group() -> None:
    also, before = Took(45.0, "g", "b", (PLACE,)), GroupDisturbed(44.0, "g")
    assert kinds(settled(also)) == {BrokenPromise.OWNED_TWICE}
    assert kinds(settled(before, also)) == set()
    # It is looked at when the group settles again.
    again = GroupSettled(46.0, "g", (PLACE, OTHER))
    assert kinds(settled(before, also, again)) == {BrokenPromise.OWNED_TWICE}
    assert kinds(settled(before, GaveUp(44.5, "g", "a", (PLACE,)), also, again)) == set()


@pytest.mark.parametrize("places", [(PLACE,), None])
def test_no_owner_in_a_settled_group(places: tuple[tuple[str, int], ...] | None) -> None:
    assert kinds(settled(GaveUp(45.0, "g", "a", places))) == {BrokenPromise.NOT_OWNED}
    assert kinds(settled(GroupDisturbed(44.0, "g"), GaveUp(45.0, "g", "a", places))) == set()


@pytest.mark.parametrize("late", [Committed, CommitSeen], ids=["another commit is accepted", "an older one is told"])
def test_a_commit_that_goes_back(late: Callable[..., Event]) -> None:
    assert kinds(settled(late(45.0, "g", PLACE, 4, 44.0))) == {BrokenPromise.COMMIT_BACK}
    # It was begun before the larger one was acknowledged.
    assert kinds(settled(late(45.0, "g", PLACE, 4, 37.5))) == set()
    assert kinds(settled(late(45.0, "other", PLACE, 4, 44.0))) == set()


def test_an_observer_of_a_deposed_coordinator_sees_nothing_go_back_for_itself() -> None:
    first = CommitSeen(45.0, "g", PLACE, 4, 44.0, "o")
    assert kinds(settled(first)) == set()
    assert kinds(settled(first, CommitSeen(47.0, "g", PLACE, 3, 46.0, "o"))) == {BrokenPromise.COMMIT_BACK}
