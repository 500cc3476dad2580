"""Sends a few records and says where they are.

python examples/produce.py localhost:9092 clicks
"""

from __future__ import annotations

import sys

from ottla.client.sync import Producer

bootstrap, topic = sys.argv[1:]
with Producer(bootstrap_servers=bootstrap, key_serializer="StringSerializer") as producer:
    futures = [producer.send(topic, value=b"page %d" % number, key=f"user {number % 3}") for number in range(6)]
    for future in futures:
        place = future.result(timeout_s=10)
        print(f"{place.topic}-{place.partition} @ {place.offset}")
