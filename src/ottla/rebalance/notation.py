"""How partitions and tables are written in text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ottla.assign.consumer_protocol import Partitions
from ottla.assign.simulation import count


def shown(partitions: Partitions, widest: int = 60) -> str:
    """Partitions for people: `orders 0-3,7 returns 1`."""
    text = " ".join(f"{topic} {ranges(indexes)}" for topic, indexes in sorted(partitions.items()) if indexes)
    return text if len(text) <= widest else f"{text[:widest]}… ({count(partitions)})"


def ranges(indexes: Iterable[int]) -> str:
    """Numbers with runs drawn together: `0-3,7`."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int | None = None) -> Iterator[str]:
    """A table as lines; columns from `numbers_from` on are set to the right."""
    widths = [max(len(line[at]) for line in (head, *rows)) for at in range(len(head))]
    for line in (head, *rows):
        cells = [
            cell.rjust(widths[at]) if numbers_from is not None and at >= numbers_from else cell.ljust(widths[at])
            for at, cell in enumerate(line)
        ]
        yield "  ".join(cells).rstrip()
