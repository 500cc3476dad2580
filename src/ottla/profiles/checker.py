"""The checker: takes what was read back, and says what was lost, doubled or reordered. Memory: a bit per record.

numpy and pyarrow are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.profiles.payloads import read_ids

if TYPE_CHECKING:
    import pyarrow

    from ottla.profiles.payloads import Numbers, Octets

COUNTED_BYTES: Final = 1024 * 1024
"""Bytes of a bitmap that are counted at a time."""
_BITS: Final = 8
_NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class Sent:
    """The records that a producer handed over: the sequence numbers below `handed_over`.

    Those in `uncertain`, ranges in order without overlap (the end excluded), were not acknowledged: they may be there.
    """

    producer: int
    handed_over: int
    uncertain: Sequence[tuple[int, int]] = ()

    @property
    def certain(self) -> int:
        """How many must be there."""
        return self.handed_over - sum(end - start for start, end in self.uncertain)


@dataclass(frozen=True, slots=True)
class Checked:
    """The checker's findings. `strange` records have no id, or one that was never handed over.

    `reordered` counts the first appearances that come after a later record of their producer in their partition.
    """

    read: int
    lost: int
    doubled: int
    reordered: int
    strange: int


class Checker:
    """Gathers what is read, partition by partition in the order of offsets."""

    def __init__(self, sent: Iterable[Sent], partitions: int, record_bytes: int) -> None:
        import numpy

        self._record_bytes = record_bytes
        self._seen = {each.producer: _Seen(each, partitions) for each in sent}
        self._numbers = numpy.array(sorted(self._seen), numpy.int64)
        self._read = self._doubled = self._reordered = self._strange = 0

    def add(self, partition: int, values: pyarrow.Array) -> None:
        """Take the values of the next records of a partition."""
        self._read += len(values)
        producers, sequences, strange = read_ids(values, self._record_bytes)
        self._strange += strange
        if not len(producers):
            return
        if (producers == producers[0]).all():
            self._take(int(producers[0]), partition, sequences)
            return
        known = 0
        for number in self._numbers:
            of_one = sequences[producers == number]
            known += len(of_one)
            self._take(int(number), partition, of_one)
        self._strange += len(sequences) - known

    def _take(self, producer: int, partition: int, sequences: Numbers) -> None:
        seen = self._seen.get(producer)
        if seen is None:
            self._strange += len(sequences)
            return
        doubled, reordered, strange = seen.add(partition, sequences)
        self._doubled += doubled
        self._reordered += reordered
        self._strange += strange

    def result(self) -> Checked:
        """Return the findings in all that was taken."""
        lost = sum(each.lost() for each in self._seen.values())
        return Checked(self._read, lost, self._doubled, self._reordered, self._strange)


class _Seen:
    """Which records of one producer have been read."""

    def __init__(self, sent: Sent, partitions: int) -> None:
        import numpy

        self._sent = sent
        self._bits: Octets = numpy.zeros(-(-sent.handed_over // _BITS), numpy.uint8)
        self._highest: list[int] = [_NEVER] * partitions

    def add(self, partition: int, sequences: Numbers) -> tuple[int, int, int]:
        """Take sequence numbers in the order of offsets; how many came again, out of order, and from nowhere."""
        import numpy

        possible = sequences < self._sent.handed_over
        strange = int(len(sequences) - possible.sum())
        if strange:
            sequences = sequences[possible]
        if not len(sequences):
            return 0, 0, strange
        ordered, firsts = sequences, None
        if len(sequences) > 1 and (sequences[1:] <= sequences[:-1]).any():
            ordered, firsts = numpy.unique(sequences, return_index=True)
        is_new = self._set(ordered)
        doubled = int(len(sequences) - is_new.sum())
        new = ordered[is_new] if firsts is None else sequences[numpy.sort(firsts[is_new])]
        return doubled, self._count_reordered(partition, new), strange

    def _set(self, ordered: Numbers) -> Any:
        """Set the bits of numbers that grow; whether each was not set before."""
        import numpy

        places = ordered >> 3
        masks = numpy.left_shift(1, ordered & (_BITS - 1)).astype(numpy.uint8)
        is_new = (self._bits[places] & masks) == 0
        starts = numpy.flatnonzero(numpy.diff(places, prepend=_NEVER))
        self._bits[places[starts]] |= numpy.bitwise_or.reduceat(masks, starts)
        return is_new

    def _count_reordered(self, partition: int, new: Numbers) -> int:
        import numpy

        if not len(new):
            return 0
        before = numpy.maximum.accumulate(numpy.concatenate(([self._highest[partition]], new)))
        self._highest[partition] = int(before[-1])
        return int((new < before[:-1]).sum())

    def lost(self) -> int:
        """How many of those that must be there were not read."""
        found, at = 0, 0
        for start, end in (*self._sent.uncertain, (self._sent.handed_over, self._sent.handed_over)):
            found += self._count(at, start)
            at = end
        return self._sent.certain - found

    def _count(self, start: int, end: int) -> int:
        """How many bits from `start` to `end` (excluded) are set."""
        import numpy

        count = 0
        step = COUNTED_BYTES * _BITS
        for at in range(start - start % _BITS, end, step):
            stop = min(at + step, end)
            bits = numpy.unpackbits(self._bits[at // _BITS : -(-stop // _BITS)], bitorder="little")
            count += int(bits[max(start - at, 0) : stop - at].sum(dtype=numpy.int64))
        return count
