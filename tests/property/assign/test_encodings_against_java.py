"""Subscriptions and assignments, written and read as Java's `ConsumerProtocol` does, in all versions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.assign.consumer_protocol import (
    HIGHEST_VERSION,
    NO_GENERATION,
    Assignment,
    Malformed,
    Partitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from support.assignor_oracle import AssignorOracle, OracleError

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("A4", "A5")]

NAMES = ("t", "a", "orders", "T_1", "t.10", "é", "\uff5e", "\U0001f600", "x" * 249)
CASES = 500


def random_partitions(chance: random.Random) -> Partitions:
    names = chance.sample(NAMES, chance.randint(0, 4))
    return {name: tuple(chance.sample(range(300), chance.randint(1, 5))) for name in names}


def random_data(chance: random.Random) -> bytes | None:
    return chance.choice([None, b"", chance.randbytes(9)])


def random_subscription(chance: random.Random, version: int) -> bytes:
    return encode_subscription(
        chance.sample(NAMES, chance.randint(0, 5)),
        random_data(chance),
        version,
        owned_partitions=random_partitions(chance),
        generation_id=chance.choice([NO_GENERATION, 0, 7, 2**31 - 1]),
        rack_id=chance.choice([None, "rack-a", "é"]),
    )


def read_as_java_prints(told: dict[str, Any]) -> tuple[Any, ...]:
    owned = {topic: tuple(indexes) for topic, indexes in told["owned"].items()}
    data = None if told["user_data"] is None else bytes.fromhex(told["user_data"])
    generation = NO_GENERATION if told["generation"] is None else told["generation"]
    return tuple(told["topics"]), data, owned, generation, told["rack"]


def rewritten(read: Subscription, version: int) -> bytes:
    return encode_subscription(
        read.topics,
        read.user_data,
        version,
        owned_partitions=read.owned_partitions,
        generation_id=read.generation_id,
        rack_id=read.rack_id,
    )


@pytest.mark.parametrize("version", range(HIGHEST_VERSION + 1))
def test_subscriptions(version: int, assignor_oracle: AssignorOracle):
    """What we write Java reads as we do; what Java writes of it, in any version, is what we write."""
    chance = random.Random(version)
    for _ in range(CASES):
        data, other = random_subscription(chance, version), chance.randint(0, HIGHEST_VERSION)
        read = decode_subscription(data)
        assert isinstance(read, Subscription)
        told = assignor_oracle.ask({"operation": "rewrite_subscription", "bytes": data.hex(), "version": other})
        assert read_as_java_prints(told) == (
            read.topics,
            read.user_data,
            read.owned_partitions,
            read.generation_id,
            read.rack_id,
        )
        assert rewritten(read, other).hex() == told["bytes"]
        assert rewritten(read, version) == data


@pytest.mark.parametrize("version", range(HIGHEST_VERSION + 1))
def test_assignments(version: int, assignor_oracle: AssignorOracle):
    chance = random.Random(version)
    for _ in range(CASES):
        partitions, data = random_partitions(chance), random_data(chance)
        sent = encode_assignment(partitions, data, version)
        assert decode_assignment(sent) == Assignment(version, partitions, data)
        told = assignor_oracle.ask({"operation": "rewrite_assignment", "bytes": sent.hex(), "version": version})
        assert told["bytes"] == sent.hex()
        assert {topic: tuple(indexes) for topic, indexes in told["partitions"].items()} == partitions


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Up to two bytes are others, and perhaps the end is missing."""
    bent = bytearray(data)
    for _ in range(chance.randint(0, 2)):
        bent[chance.randrange(len(bent))] = chance.choice([0, 1, 255, chance.randrange(256)])
    return bytes(bent[: chance.choice([len(bent), len(bent), chance.randrange(len(bent) + 1)])])


def asked(oracle: AssignorOracle, operation: str, data: bytes) -> Any:
    """What Java reads, None where it throws."""
    try:
        return oracle.ask({"operation": operation, "bytes": data.hex(), "version": HIGHEST_VERSION})
    except OracleError:
        return None


def java_would_guess(refused: Malformed) -> bool:
    return "not UTF-8" in refused.message or "negative length" in refused.message


def test_damaged_subscriptions(assignor_oracle: AssignorOracle):
    """Java and we read the same of damaged bytes, or refuse both.

    Three differences are wanted: bytes that announce a newer version and end behind the fields of version 0 (some older
    clients wrote such) are read; names that are not UTF-8, which Java reads with question marks, are refused, and so
    are lengths below -1, which Java takes for -1.
    """
    chance = random.Random(9)
    refused = read_by_both = 0
    for _ in range(4 * CASES):
        data = damaged(chance, random_subscription(chance, chance.randint(0, HIGHEST_VERSION)))
        ours, javas = decode_subscription(data), asked(assignor_oracle, "rewrite_subscription", data)
        if javas is None:
            refused += 1
            assert isinstance(ours, Malformed) or is_old_form(data), data.hex()
        elif isinstance(ours, Malformed):
            assert java_would_guess(ours), (data.hex(), ours)
        else:
            read_by_both += 1
            assert rewritten(ours, HIGHEST_VERSION).hex() == javas["bytes"], data.hex()
    assert refused > CASES // 2
    assert read_by_both > CASES // 2


def test_damaged_assignments(assignor_oracle: AssignorOracle):
    """As with subscriptions; no bytes at all, which Java's reader refuses and its consumer never sees, are nothing."""
    chance = random.Random(10)
    refused = read_by_both = 0
    for _ in range(4 * CASES):
        sent = encode_assignment(random_partitions(chance), random_data(chance), chance.randint(0, HIGHEST_VERSION))
        data = damaged(chance, sent)
        ours, javas = decode_assignment(data), asked(assignor_oracle, "rewrite_assignment", data)
        if javas is None:
            refused += 1
            assert isinstance(ours, Malformed) or not data, data.hex()
        elif isinstance(ours, Malformed):
            assert java_would_guess(ours), (data.hex(), ours)
        else:
            read_by_both += 1
            there = {topic: indexes for topic, indexes in ours.partitions.items() if indexes}
            assert encode_assignment(there, ours.user_data, HIGHEST_VERSION).hex() == javas["bytes"], data.hex()
    assert refused > CASES // 2
    assert read_by_both > CASES // 2


def is_old_form(data: bytes | bytearray) -> bool:
    return isinstance(decode_subscription(bytes(2) + data[2:]), Subscription) and any(data[:2])
