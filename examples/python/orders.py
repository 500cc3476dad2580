"""Orders are sent to a topic, and billed by a consumer group: the clients without asyncio."""

from __future__ import annotations

from ottla.client.sync import Consumer, Producer

TOPIC = "orders"


def send(bootstrap_servers: str, orders: dict[str, str]) -> None:
    """Send orders by customer, and wait until the broker has them."""
    with Producer(
        bootstrap_servers=bootstrap_servers, key_serializer="StringSerializer", value_serializer="StringSerializer"
    ) as producer:
        for sent in [producer.send(TOPIC, value=order, key=customer) for customer, order in orders.items()]:
            sent.result()


def bill(bootstrap_servers: str, group: str, count: int) -> list[str]:
    """Bill this many orders as a member of the group, and commit what was billed."""
    billed: list[str] = []
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([TOPIC])
        while len(billed) < count:
            billed += [record.value.decode() for record in consumer.poll(timeout_ms=500)]
            consumer.commit()
    return billed
