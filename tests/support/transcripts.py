"""The words of transcripts: what the commands of `scenarios/groups` and of `interop/groups` are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ottla.assign.consumer_protocol import encode_subscription
from ottla.groups.events import Protocols

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass
class Words:
    """A command taken apart: `key=value` options, and everything else in order."""

    plain: list[str]
    options: dict[str, str]


def words_of(words: list[str]) -> Words:
    """Take a command apart; the first `=` of a word divides key and value."""
    plain, options = [], {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            options[key] = value
        else:
            plain.append(word)
    return Words(plain, options)


def milliseconds(text: str) -> int:
    """`10s`, `3000ms`, `7d`; a number alone is in milliseconds."""
    found = re.fullmatch(r"(\d+)(ms|[smhd]?)", text)
    assert found is not None, text
    return int(found[1]) * UNITS_MS[found[2] or "ms"]


def protocols_of(words: list[str]) -> Protocols:
    """`range:t1,t2`, `sticky:t1+t1:0,1` (with owned partitions), `range:0x00ff` (the bytes themselves)."""
    protocols = []
    for word in words:
        name, _, topics = word.partition(":")
        if topics.startswith("0x"):
            metadata = bytes.fromhex(topics[2:])
        else:
            topics, plus, owned = topics.partition("+")
            names = [topic for topic in topics.split(",") if topic]
            metadata = encode_subscription(names, version=1 if plus else 0, owned_partitions=partitions_of(owned))
        protocols.append((name, metadata))
    return tuple(protocols)


def partitions_of(text: str) -> dict[str, list[int]]:
    """`t1:0,1;t2:0`."""
    partitions = {}
    for part in filter(None, text.split(";")):
        topic, indexes = part.split(":")
        partitions[topic] = [int(index) for index in indexes.split(",")]
    return partitions
