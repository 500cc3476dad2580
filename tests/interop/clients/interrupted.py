"""A program that is interrupted by Ctrl-C: `interrupted.py KIND ACTIVITY BOOTSTRAP TOPIC GROUP ACKNOWLEDGED`.

It catches nothing, says "ready" when it is at its activity, and repeats it for ever. Values that were acknowledged
are written to the file ACKNOWLEDGED, a line each.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.max.wait.ms": 100,
    "max.poll.records": 5,
    "heartbeat.interval.ms": 200,
}


class Program:
    """The activities, with an event loop and without: they differ in `await` only, so each is written twice."""

    def __init__(self, bootstrap: str, topic: str, group: str, acknowledged: str) -> None:
        self.topic = topic
        self.servers = {"bootstrap.servers": bootstrap}
        self.consumer = {**self.servers, **CONSUMER, "group.id": group}
        self.acknowledged = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.sent = 0

    def value(self) -> bytes:
        self.sent += 1
        return b"%d" % self.sent

    def note(self, value: bytes) -> Any:
        """A callback that writes the value down."""

        def told(metadata: Any, error: Any) -> None:
            if error is None:
                os.write(self.acknowledged, value + b"\n")

        return told

    def ready(self) -> None:
        print("ready", flush=True)

    # Without an event loop

    def sync_consuming(self, activity: str) -> None:
        from ottla.client.sync import Consumer

        with Consumer(self.consumer) as consumer:
            consumer.subscribe([self.topic])
            while not consumer.assignment():
                consumer.poll(50)
            self.ready()
            if activity == "iterate":
                for _ in consumer:
                    pass
            while True:
                consumer.poll(300)
                if activity == "commit":
                    consumer.commit()
                elif activity == "rebalance":
                    consumer.enforce_rebalance()

    def sync_producing(self, activity: str) -> None:
        from ottla.client.sync import Producer

        with Producer({**self.servers, "linger.ms": 1}) as producer:
            producer.send(self.topic, b"first").result(60)
            self.ready()
            while True:
                value = self.value()
                producer.send(self.topic, value, callback=self.note(value))
                if activity == "flush" or self.sent % 2000 == 0:
                    producer.flush()

    def sync_closing(self) -> None:
        from ottla.client.sync import Consumer, Producer

        is_ready = False
        while True:
            with Consumer(self.consumer) as consumer, Producer(self.servers) as producer:
                consumer.subscribe([self.topic])
                value = self.value()
                producer.send(self.topic, value, callback=self.note(value))
                while not consumer.assignment():
                    consumer.poll(50)
            if not is_ready:
                is_ready = True
                self.ready()

    # With one

    async def async_consuming(self, activity: str) -> None:
        from ottla.client import Consumer

        async with Consumer(self.consumer) as consumer:
            await consumer.subscribe([self.topic])
            while not consumer.assignment():
                await consumer.poll(50)
            self.ready()
            if activity == "iterate":
                async for _ in consumer:
                    pass
            while True:
                await consumer.poll(300)
                if activity == "commit":
                    await consumer.commit()
                elif activity == "rebalance":
                    consumer.enforce_rebalance()

    async def async_producing(self, activity: str) -> None:
        from ottla.client import Producer

        async with Producer({**self.servers, "linger.ms": 1}) as producer:
            await (await producer.send(self.topic, b"first"))
            self.ready()
            while True:
                value = self.value()
                await producer.send(self.topic, value, callback=self.note(value))
                if activity == "flush" or self.sent % 2000 == 0:
                    await producer.flush()

    async def async_closing(self) -> None:
        from ottla.client import Consumer, Producer

        is_ready = False
        while True:
            async with Consumer(self.consumer) as consumer, Producer(self.servers) as producer:
                await consumer.subscribe([self.topic])
                value = self.value()
                await producer.send(self.topic, value, callback=self.note(value))
                while not consumer.assignment():
                    await consumer.poll(50)
            if not is_ready:
                is_ready = True
                self.ready()

    def run(self, kind: str, activity: str) -> None:
        """Go on for ever."""
        if activity == "close":
            asyncio.run(self.async_closing()) if kind == "asyncio" else self.sync_closing()
        elif activity in ("send", "flush", "hanging send"):
            asyncio.run(self.async_producing(activity)) if kind == "asyncio" else self.sync_producing(activity)
        else:
            asyncio.run(self.async_consuming(activity)) if kind == "asyncio" else self.sync_consuming(activity)


if __name__ == "__main__":
    Program(*sys.argv[3:]).run(sys.argv[1], sys.argv[2])
