"""Reads a topic from its beginning, as a member of a group, until nothing has come for a while.

python examples/consume.py localhost:9092 clicks
"""

from __future__ import annotations

import sys

from ottla.client.sync import Consumer

bootstrap, topic = sys.argv[1:]
with Consumer(bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
    consumer.subscribe([topic])
    silent_polls = 0
    while silent_polls < 2:
        records = consumer.poll(timeout_ms=1000)
        for record in records:
            print(f"{record.topic}-{record.partition} @ {record.offset}: {record.key!r} {record.value!r}")
        if records:
            silent_polls = 0
        elif consumer.assignment():  # before, the group is still coming together
            silent_polls += 1
