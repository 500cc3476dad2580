"""A program that is interrupted at random points while it reads, continues each time, and tells what it has seen.

    python interrupted_reader.py BOOTSTRAP TOPIC PARTITIONS COUNT SEED poll|iterate

It prints, as JSON, the offsets seen of each partition in their order, how often it was interrupted, and how many
seconds the longest `close` took.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import time
from types import FrameType
from typing import Any

from ottla.client.model import TopicPartition
from ottla.client.sync import Consumer

LONGEST_S = 0.001
SHORTEST_S = 0.00005
AGAIN_S = 0.05
"""Python drops what is raised in the midst of its own cleaning up, so an interruption may have to come again."""
CLOSED_EVERY = 25
"""Interruptions after which the consumer is closed and another continues where it stopped."""
TIME_LIMIT_S = 100.0
CLOSE_LIMIT_S = 15.0
"""Time after the limit when the stacks are dumped, as it hangs then."""


class Reading:
    """What was seen; `armed` while an interruption may come."""

    def __init__(self, arguments: list[str]) -> None:
        self.bootstrap, self.topic, partitions, count, seed, self.way = arguments
        self.partitions = [TopicPartition(self.topic, each) for each in range(int(partitions))]
        self.count = int(count)
        self.chance = random.Random(int(seed))
        self.seen: dict[int, list[int]] = {each.partition: [] for each in self.partitions}
        self.interruptions = 0
        self.longest_close_s = 0.0
        self.longest_s = LONGEST_S
        self.armed = False
        self.got: Any = None

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """SIGALRM in place of Ctrl-C."""
        if self.armed:
            raise KeyboardInterrupt

    def open(self) -> Any:
        """A consumer that continues where the one before it stopped."""
        consumer: Any = Consumer(
            bootstrap_servers=self.bootstrap, group_id=self.topic, auto_offset_reset="earliest", max_poll_records=37
        )
        consumer.assign(self.partitions)
        return consumer

    def read(self, consumer: Any) -> None:
        """One call, or an iteration, until it is interrupted."""
        self.got = None
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(SHORTEST_S, self.longest_s), AGAIN_S)
            if self.way == "poll":
                self.got = consumer.poll(200)
                self.armed = False
            else:
                for self.got in consumer:
                    self.note([self.got])
                    self.got = None
                    if self.is_complete():
                        break
                self.armed = False
            # Calls may take much less time on one machine than on another: come sooner, until some are met.
            self.longest_s = max(self.longest_s * 0.9, 2 * SHORTEST_S)
        except KeyboardInterrupt:
            self.armed = False
            self.interruptions += 1
            self.longest_s = min(self.longest_s * 1.5, LONGEST_S)
        if self.got is not None:
            self.note(self.got if self.way == "poll" else [self.got])

    def note(self, records: Any) -> None:
        """The caller has these, once each."""
        for record in records:
            offsets = self.seen[record.partition]
            if not (self.way == "iterate" and offsets and offsets[-1] == record.offset and record is self.got):
                offsets.append(record.offset)

    def is_complete(self) -> bool:
        """Whether there is nothing left to read."""
        return all(len(each) >= self.count for each in self.seen.values())

    def run(self) -> None:
        """Read everything."""
        signal.signal(signal.SIGALRM, self.interrupt)
        faulthandler.dump_traceback_later(TIME_LIMIT_S + CLOSE_LIMIT_S, exit=True)
        try:
            self.read_all()
        finally:
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        told = {"seen": self.seen, "interruptions": self.interruptions, "longest_close_s": self.longest_close_s}
        print(json.dumps(told))

    def read_all(self) -> None:
        """Read until all is seen or the time is up; closes and opens the consumer now and then."""
        consumer = self.open()
        give_up_at = time.monotonic() + TIME_LIMIT_S
        closed_at = 0
        while not self.is_complete() and time.monotonic() < give_up_at:
            self.read(consumer)
            if self.interruptions >= closed_at + CLOSED_EVERY:
                closed_at = self.interruptions
                self.close(consumer)
                consumer = self.open()
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.close(consumer)

    def close(self, consumer: Any) -> None:
        """Close it, and see how long that takes."""
        started = time.monotonic()
        consumer.close()
        self.longest_close_s = max(self.longest_close_s, time.monotonic() - started)


if __name__ == "__main__":
    Reading(sys.argv[1:]).run()
