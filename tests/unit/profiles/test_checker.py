"""The checker notices what it is there for: lost, doubled, swapped and foreign records are planted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import pyarrow
import pytest

from ottla.profiles.checker import Checked, Checker, Sent
from ottla.profiles.payloads import RecordMaker
from ottla.profiles.workload import CLICKS, PAYMENTS

pytestmark = pytest.mark.spec("D6")

SIZE = 130


def values(sequences: Sequence[int], producer: int = 0) -> list[bytes]:
    """Payments with these sequence numbers."""
    maker = RecordMaker(PAYMENTS, producer, SIZE, chunk_rows=1)
    made: list[bytes] = [maker.chunk(each, 1, 1_764_000_000_000).column("value")[0].as_py() for each in sequences]
    return made


def checked(
    *batches: tuple[int, list[bytes] | list[bytes | None]],
    sent: Sequence[Sent] = (Sent(0, 100),),
    partitions: int = 2,
) -> Checked:
    """What is found in batches of a partition's values."""
    checker = Checker(sent, partitions, SIZE)
    for partition, records in batches:
        checker.add(partition, pyarrow.array(records, pyarrow.binary()))
    return checker.result()


def test_all_is_well() -> None:
    evens, odds = values(range(0, 100, 2)), values(range(1, 100, 2))
    assert checked((0, evens[:20]), (0, evens[20:]), (1, odds)) == Checked(100, 0, 0, 0, 0)


def test_lost_records() -> None:
    whole = [*range(7), *range(8, 63), *range(66, 100)]
    assert checked((0, values(whole))) == Checked(96, 4, 0, 0, 0)
    assert checked() == Checked(0, 100, 0, 0, 0)


@pytest.mark.parametrize("again", [[10], [9, 10], [0, 99]])
def test_doubled_records_of_one_batch_and_of_another(again: list[int]) -> None:
    expected = Checked(100 + len(again), 0, len(again), 0, 0)
    assert checked((0, values([*range(100), *again]))) == expected
    assert checked((0, values(range(100))), (0, values(again))) == expected
    assert checked((0, values(range(100))), (1, values(again))) == expected


def test_a_batch_that_was_appended_twice_is_doubled_and_not_reordered() -> None:
    found = checked((0, values([*range(50), *range(40, 50), *range(50, 100)])))
    assert found == Checked(110, 0, 10, 0, 0)


def test_swapped_records() -> None:
    assert checked((0, values([*range(10), 11, 10, *range(12, 100)]))) == Checked(100, 0, 0, 1, 0)
    # Over the end of what is read at a time, too.
    assert checked((0, values([*range(10), 11])), (0, values([10, *range(12, 100)]))) == Checked(100, 0, 0, 1, 0)
    # A batch that was overtaken by the next one.
    assert checked((0, values([*range(20), *range(40, 60), *range(20, 40), *range(60, 100)]))).reordered == 20


def test_order_is_that_of_a_partition_and_of_a_producer() -> None:
    sent = [Sent(0, 10), Sent(3, 10)]
    mixed = [record for pair in zip(values(range(5, 10)), values(range(5), 3), strict=True) for record in pair]
    found = checked((0, mixed), (1, values(range(5))), (1, values(range(5, 10), 3)), sent=sent)
    assert found == Checked(20, 0, 0, 0, 0)


def test_what_was_not_acknowledged_may_be_there_or_not_but_not_twice() -> None:
    sent = [Sent(0, 100, [(10, 20), (60, 100)])]
    assert sent[0].certain == 50
    assert checked((0, values([*range(10), *range(20, 60)])), sent=sent) == Checked(50, 0, 0, 0, 0)
    assert checked((0, values([*range(15), *range(20, 70)])), sent=sent) == Checked(65, 0, 0, 0, 0)
    assert checked((0, values([*range(9), *range(20, 60), 99, 99])), sent=sent) == Checked(51, 1, 1, 0, 0)


def test_records_that_nobody_sent() -> None:
    other = values([0], producer=9)
    beyond = values([100])
    broken = values([5])[0].replace(b'"id":"0', b'"id":"x')
    foreign = [b"something else", None, broken, broken[:-1], b"x" * SIZE]
    assert checked((0, [*values(range(100)), *other, *beyond, *foreign])) == Checked(107, 0, 0, 0, 7)
    assert checked((0, values(range(100))), (0, other)) == Checked(101, 0, 0, 0, 1)


def test_a_slice_of_a_batch() -> None:
    checker = Checker([Sent(0, 100)], 1, SIZE)
    whole = pyarrow.array(values(range(100)), pyarrow.binary())
    for first in range(0, 100, 30):
        checker.add(0, whole.slice(first, 30))
    assert checker.result() == Checked(100, 0, 0, 0, 0)


def test_agrees_with_sets_on_shuffled_records() -> None:
    random = numpy.random.default_rng(7)
    sent = [Sent(0, 3_000, [(100, 250), (2_990, 3_000)]), Sent(1, 1_001)]
    maker = {each.producer: RecordMaker(PAYMENTS, each.producer, SIZE, chunk_rows=3_000) for each in sent}
    made = [
        record
        for each in sent
        for record in maker[each.producer].chunk(0, each.handed_over, 0).column("value").to_pylist()
    ]
    ids = [(each.producer, number) for each in sent for number in range(each.handed_over)]
    chosen = random.integers(0, len(ids), 5_000)
    checker = Checker(sent, 1, SIZE)
    for part in numpy.array_split(chosen, 13):
        checker.add(0, pyarrow.array([made[each] for each in part], pyarrow.binary()))
    seen, highest, reordered = set(), {0: -1, 1: -1}, 0
    for each in chosen:
        producer, number = ids[each]
        if (producer, number) in seen:
            continue
        seen.add((producer, number))
        reordered += number < highest[producer]
        highest[producer] = max(highest[producer], number)
    uncertain = {(0, number) for start, end in sent[0].uncertain for number in range(start, end)}
    lost = len(set(ids) - seen - uncertain)
    assert checker.result() == Checked(5_000, lost, 5_000 - len(seen), reordered, 0)


@pytest.mark.slow
def test_a_hundred_million_records_fit_into_a_bit_each() -> None:
    """The last ids of as many: the bitmap is there, and the record maker writes ids of that length."""
    count = 100_000_000
    maker = RecordMaker(CLICKS, 63, SIZE)
    checker = Checker([Sent(63, count)], 1, SIZE)
    checker.add(0, maker.chunk(count - maker.rows, maker.rows, 0).column("value").cast(pyarrow.binary()))
    assert checker.result() == Checked(maker.rows, count - maker.rows, 0, 0, 0)
