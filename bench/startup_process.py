"""One process of `startup.py`: what the test broker, or a client library, costs in a process that does nothing else.

startup_process.py broker              test brokers in a new process; prints figures as JSON
startup_process.py LIBRARY ADDRESS     subscribes with a client library, once for each group that is named in a
                                       line of standard input, and prints the seconds until the first record
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: Test brokers after the first one.
LATER = 11
TOPIC = "startup"
POLL_S = 5.0
MB = 1e6


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB


def start_brokers() -> None:
    """Print what a first test broker cost, and its port; when told to continue, what later ones cost."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    importlib.import_module("ottla.broker.server")  # as the first start does
    from ottla.testing import Broker

    imported_s = time.perf_counter()
    with Broker() as broker:
        ready_s = time.perf_counter()
        first = {
            "ready_at": time.monotonic(),  # the clock that all processes share
            "import_s": imported_s - began_s,
            "first_s": ready_s - imported_s,
            "cpu_s": time.process_time() - cpu_s,
            "resident_mb": _resident_mb(),
            "port": broker.port,
        }
        print(json.dumps(first), flush=True)
        sys.stdin.readline()
    later = []
    for _ in range(LATER):
        again_s = time.perf_counter()
        with Broker():
            later.append(time.perf_counter() - again_s)
    print(json.dumps({"later_s": statistics.median(later)}))


def _kafka_python(address: str, group: str) -> float:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=address, group_id=group, auto_offset_reset="earliest")
    began_s = time.perf_counter()
    consumer.subscribe([TOPIC])
    while not consumer.poll(timeout_ms=int(POLL_S * 1000)):
        pass
    taken_s = time.perf_counter() - began_s
    consumer.close()
    return taken_s


def _confluent_kafka(address: str, group: str) -> float:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"})
    began_s = time.perf_counter()
    consumer.subscribe([TOPIC])
    while (message := consumer.poll(POLL_S)) is None or message.error():
        pass
    taken_s = time.perf_counter() - began_s
    consumer.close()
    return taken_s


def _aiokafka(address: str, group: str) -> float:
    from aiokafka import AIOKafkaConsumer

    async def subscribe() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=group, auto_offset_reset="earliest")
        began_s = time.perf_counter()
        consumer.subscribe([TOPIC])
        await consumer.start()
        await consumer.getone()
        taken_s = time.perf_counter() - began_s
        await consumer.stop()
        return taken_s

    return asyncio.run(subscribe())


def _ottla(address: str, group: str) -> float:
    from ottla.client import Consumer

    async def subscribe() -> float:
        async with Consumer(bootstrap_servers=address, group_id=group, auto_offset_reset="earliest") as consumer:
            began_s = time.perf_counter()
            await consumer.subscribe([TOPIC])
            while not await consumer.poll(int(POLL_S * 1000)):
                pass
            return time.perf_counter() - began_s

    return asyncio.run(subscribe())


LIBRARIES: dict[str, Callable[[str, str], float]] = {
    "ottla": _ottla,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "confluent-kafka": _confluent_kafka,
}


def main(arguments: list[str]) -> None:
    """Do what the arguments say."""
    if arguments == ["broker"]:
        start_brokers()
    else:
        name, address = arguments
        print(json.dumps([LIBRARIES[name](address, line.strip()) for line in sys.stdin]))


if __name__ == "__main__":
    main(sys.argv[1:])
