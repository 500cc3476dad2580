"""A member of the demo's ordinary consumer group, run as a program.

It reads one JSON line, `{"topic": …, "settings": {…}}`, from its standard input, writes one for each change of its
assignment, and ends on SIGTERM, or when its parent is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from confluent_kafka import Consumer, TopicPartition

POLL_S = 0.2


class _Member:
    def __init__(self, settings: dict[str, str]) -> None:
        self.consumer = Consumer(settings)
        self.consumed = 0
        self.owned: set[int] = set()
        self.stopping = False

    def run(self, topic: str, parent: int) -> None:
        self.consumer.subscribe([topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)
        while not self.stopping and os.getppid() == parent:
            self.consumed += sum(1 for message in self.consumer.consume(500, POLL_S) if message.error() is None)
        self.consumer.close()
        self.report("closed")

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {each.partition for each in partitions}
        self.report("assigned")

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {each.partition for each in partitions}
        self.report("revoked")

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {each.partition for each in partitions}
        self.report("lost")

    def report(self, event: str) -> None:
        news = {"time": time.time(), "event": event, "partitions": sorted(self.owned), "consumed": self.consumed}
        print(json.dumps(news), flush=True)


def _main() -> None:
    arguments = json.loads(sys.stdin.readline())
    member = _Member(arguments["settings"])

    def stop(number: int, frame: object) -> None:
        member.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Who started it says so itself: it may be gone by now, and another process be the parent.
    member.run(arguments["topic"], arguments["parent"])


if __name__ == "__main__":
    _main()
