"""How partitions are written in text."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.assign.consumer_protocol import Partitions


def partitions_text(partitions: Partitions) -> str:
    """Partitions by topic: `orders 0-3,7 returns 1`."""
    return " ".join(f"{topic} {ranges(indexes)}" for topic, indexes in sorted(partitions.items()) if indexes)


def ranges(indexes: Iterable[int], most: int | None = None) -> str:
    """Numbers with runs drawn together, `0-3,7`; beyond `most` runs an ellipsis follows."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:most]]
    return ",".join([*texts, "…"] if len(texts) < len(runs) else texts)
