"""A set of partitions that is kept by topic, for topics of tens of thousands of partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

_NONE: frozenset[int] = frozenset()


class PartitionSet(Collection[tuple[str, int]]):
    """Partitions, each a topic and a number.

    Sets of pairs would do, but to make ten thousands of pairs at once takes tens of milliseconds, and each is one more
    object for the garbage collector. Numbers alone take a hundredth of that.
    """

    __slots__ = ("_by_topic",)

    def __init__(self, keys: Iterable[tuple[str, int]] = ()) -> None:
        self._by_topic: dict[str, set[int]] = {}
        for key in keys:
            self.add(key)

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, tuple)
        topic, index = key
        return index in self._by_topic.get(topic, _NONE)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((topic, index) for topic, indexes in self._by_topic.items() for index in indexes)

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def add(self, key: tuple[str, int]) -> None:
        """Add one partition."""
        self._by_topic.setdefault(key[0], set()).add(key[1])

    def add_of(self, topic: str, indexes: Iterable[int]) -> None:
        """Add these partitions of a topic."""
        known = self._by_topic.setdefault(topic, set())
        known.update(indexes)
        if not known:
            del self._by_topic[topic]

    def of(self, topic: str, partitions: int) -> set[int]:
        """The numbers of a topic's partitions in the set that are below `partitions`."""
        known = self._by_topic.get(topic, _NONE)
        if not known:
            return set()
        return set(known) if max(known) < partitions else {index for index in known if index < partitions}

    def remove_all(self, others: PartitionSet) -> None:
        """Remove the partitions of another set."""
        for topic, indexes in others._by_topic.items():
            known = self._by_topic.get(topic)
            if known is not None:
                known -= indexes
                if not known:
                    del self._by_topic[topic]

    def discard_all(self, keys: Iterable[tuple[str, int]]) -> None:
        """Remove these partitions."""
        for topic, index in keys:
            known = self._by_topic.get(topic)
            if known is not None:
                known.discard(index)
                if not known:
                    del self._by_topic[topic]

    def remove_topic(self, topic: str) -> None:
        """Remove all partitions of a topic."""
        self._by_topic.pop(topic, None)

    def copy(self) -> PartitionSet:
        """An equal set of its own."""
        other = PartitionSet()
        other._by_topic = {topic: set(indexes) for topic, indexes in self._by_topic.items()}
        return other

    def clear(self) -> None:
        """Remove all."""
        self._by_topic.clear()
