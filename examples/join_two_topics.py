"""A join of two topics, in one task and without a thread.

Orders and payments have the same keys, and either may come first. What has come waits in a dictionary for its other
half, and is printed with it.

    python examples/join_two_topics.py localhost:9092 orders payments
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator

from ottla.client import Consumer


async def joined(bootstrap: str, orders: str, payments: str) -> AsyncGenerator[tuple[str, str, str], None]:
    """Key, order and payment of all that have both, as soon as the second one comes."""
    waiting: dict[str, dict[str, str]] = {orders: {}, payments: {}}
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "join",
        "auto.offset.reset": "earliest",
        "key.deserializer": "StringDeserializer",
        "value.deserializer": "StringDeserializer",
    }
    async with Consumer[str, str](settings) as consumer:
        await consumer.subscribe([orders, payments])
        async for record in consumer:
            other_topic = payments if record.topic == orders else orders
            other = waiting[other_topic].pop(record.key, None)
            if other is None:
                waiting[record.topic][record.key] = record.value
            elif record.topic == orders:
                yield record.key, record.value, other
            else:
                yield record.key, other, record.value


async def main() -> None:
    """Print what belongs together, `--count` times or for ever."""
    parser = argparse.ArgumentParser(description="Joins two topics by key.")
    parser.add_argument("bootstrap", help="for instance localhost:9092")
    parser.add_argument("orders")
    parser.add_argument("payments")
    parser.add_argument("--count", type=int, default=-1, help="end after this many")
    given = parser.parse_args()
    left = given.count
    pairs = joined(given.bootstrap, given.orders, given.payments)
    async for key, order, payment in pairs:
        print(f"{key}: {order}, {payment}", flush=True)
        left -= 1
        if left == 0:
            break
    await pairs.aclose()  # closes the consumer, which leaves its group


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted")
