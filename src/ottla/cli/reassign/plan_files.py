"""The files of a plan: those that `ottla reassign execute` and `kafka-reassign-partitions` take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.cli.command import write_file
from ottla.client.model import TopicPartition
from ottla.ops.cluster_leave import reassignment_json
from ottla.ops.planning.model import PartitionMove


def write_plan(path: Path, steps: Sequence[Sequence[PartitionMove]]) -> list[str]:
    """Write a file for each batch, and one that leads back; returns the names of the former. Raises CommandError."""
    _write(_named(path, "back"), {_key(each): each.before for moves in steps for each in moves})
    if len(steps) == 1:
        names = [path]
    else:
        names = [_named(path, str(number).zfill(len(str(len(steps))))) for number in range(1, len(steps) + 1)]
    for name, moves in zip(names, steps, strict=True):
        _write(name, {_key(each): each.after for each in moves})
    return [str(each) for each in names]


def files_of_plan(path: Path) -> list[str]:
    """The files that a plan named like this has where its moves are more than fit into one, in their order."""
    numbered = re.compile(re.escape(path.stem) + r"-\d+" + re.escape(path.suffix))
    try:
        return sorted(str(each) for each in path.parent.iterdir() if numbered.fullmatch(each.name))
    except OSError:
        return []


def _key(move: PartitionMove) -> TopicPartition:
    return TopicPartition(move.topic, move.partition)


def _named(path: Path, what: str) -> Path:
    return path.with_name(f"{path.stem}-{what}{path.suffix}")


def _write(path: Path, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
    write_file(path, reassignment_json(replicas))
