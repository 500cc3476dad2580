import asyncio
import os
from contextlib import asynccontextmanager

from fastapi import FastAPI

from ottla.client import Consumer, Producer

totals: dict[str, int] = {}


async def count(consumer: Consumer) -> None:
    """Count the orders of each customer, as they come."""
    await consumer.subscribe(["orders"])
    async for record in consumer:
        customer = record.key.decode() if record.key is not None else "unknown"
        totals[customer] = totals.get(customer, 0) + 1


@asynccontextmanager
async def lifespan(app: FastAPI):
    servers = os.environ["OTTLA_BOOTSTRAP_SERVER"]
    async with (
        Producer(bootstrap_servers=servers, value_serializer="StringSerializer") as producer,
        Consumer(bootstrap_servers=servers, group_id="totals", auto_offset_reset="earliest") as consumer,
    ):
        app.state.producer = producer
        counting = asyncio.create_task(count(consumer))
        yield
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{customer}")
async def order(customer: str, item: str) -> dict[str, int]:
    """Answered once the broker has the order: what is answered is not lost."""
    sent = await (await app.state.producer.send("orders", value=item, key=customer.encode()))
    return {"partition": sent.partition, "offset": sent.offset}


@app.get("/totals")
async def show() -> dict[str, int]:
    return totals
