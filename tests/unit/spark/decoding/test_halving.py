"""Batches with bad records, read by halves."""

from __future__ import annotations

import pyarrow
import pytest

from ottla.spark.decoding.halving import UnreadableError, decode_in_halves, read_singly, read_together

SCHEMA = pyarrow.schema([("size", pyarrow.int64())])


class PanicException(BaseException):
    """What PyO3 makes of a panic."""


class Sizes:
    """Reads sizes of values together, unless one is empty; counts what it was given."""

    def __init__(self, *, says_place: bool) -> None:
        self.read = 0
        self._says_place = says_place

    def together(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        self.read += len(values)
        sizes = [len(value) for value in values.to_pylist()]
        if 0 in sizes:
            raise UnreadableError("empty", sizes.index(0) if self._says_place else None)
        return [pyarrow.array(sizes, pyarrow.int64())]

    def singly(self, values: pyarrow.BinaryArray) -> tuple[list[pyarrow.Array], list[str | None]]:
        return read_singly(values, SCHEMA, self.together, "bad")


@pytest.mark.parametrize("says_place", [False, True])
@pytest.mark.parametrize("step", [1, 2, 33, 100, 4_095, 10_000])
def test_every_record_is_in_its_place_and_the_cost_is_bounded(says_place: bool, step: int) -> None:
    sizes = Sizes(says_place=says_place)
    values = [b"" if number % step == step - 1 else b"x" * (number % 5 + 1) for number in range(4_096)]
    (column,), reasons = decode_in_halves(pyarrow.array(values, pyarrow.binary()), sizes.together, sizes.singly)
    assert column.to_pylist() == [len(value) or None for value in values]
    bad = [None if value else "bad: empty" for value in values]
    assert reasons == (bad if any(bad) else None)
    # 4096, 2048, … 16 records with bad ones among them, then each alone, and the good ones before a bad one.
    assert sizes.read <= 4_096 * 11


def test_a_panic_of_a_reader_is_a_bad_record_and_an_interrupt_is_not() -> None:
    with pytest.raises(UnreadableError, match="the reader panicked: not implemented"), read_together():
        raise PanicException("not implemented")
    with pytest.raises(KeyboardInterrupt), read_together():
        raise KeyboardInterrupt
