"""The same as orders.py with the asyncio clients."""

from __future__ import annotations

from ottla.client import Consumer, Producer

TOPIC = "orders"


async def send(bootstrap_servers: str, orders: dict[str, str]) -> None:
    """Send orders by customer, and wait until the broker has them."""
    async with Producer(
        bootstrap_servers=bootstrap_servers, key_serializer="StringSerializer", value_serializer="StringSerializer"
    ) as producer:
        for sent in [await producer.send(TOPIC, value=order, key=customer) for customer, order in orders.items()]:
            await sent


async def bill(bootstrap_servers: str, group: str, count: int) -> list[str]:
    """Bill this many orders as a member of the group, and commit what was billed."""
    billed: list[str] = []
    async with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        await consumer.subscribe([TOPIC])
        async for record in consumer:
            billed.append(record.value.decode())
            if len(billed) == count:
                break
        await consumer.commit()
    return billed
