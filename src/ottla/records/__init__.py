"""Kafka's record batches: their layout, checksum, compression, and the records inside; pure, no input or output."""

from __future__ import annotations

from typing import Literal


def build_in_use() -> Literal["compiled", "pure"]:
    """Which build of the work on single records this process uses; OTTLA_BUILD chose it when ottla was built."""
    from ottla.records import building, keys, walk

    return "compiled" if building.COMPILED and keys.COMPILED and walk.COMPILED else "pure"
