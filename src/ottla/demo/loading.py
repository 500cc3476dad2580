"""Sending the events: in the order of their time, in slices, at a pace, by an idempotent producer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.demo.background import Background
from ottla.demo.feed import Event

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

SLICES_PER_SECOND = 10
LARGEST_SLICE = 2_000
FLUSH_TIMEOUT_S = 60.0


class LoadFailed(RuntimeError):
    """Events were not acknowledged; the message says how many and why."""


def slice_size(events: int, seconds: float) -> int:
    """How many events to send at once, so that all are sent in about `seconds`."""
    return max(1, min(LARGEST_SLICE, round(events / max(1.0, seconds * SLICES_PER_SECOND))))


class Loader(Background):
    """Sends events from a thread of its own; `sent` grows as they are acknowledged."""

    def __init__(self, address: str, topic: str, events: Sequence[Event], seconds: float) -> None:
        super().__init__("loader")
        self.sent = 0
        self._address = address
        self._topic = topic
        self._events = events
        self._seconds = seconds
        self._refused: list[str] = []

    def stop(self) -> None:
        """Send no more; returns when the thread has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(FLUSH_TIMEOUT_S)

    def work(self) -> None:
        """Send all events."""
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "client.id": "demo-loader",
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                # Failed deliveries are reported once, by the flush.
                "log_level": 2,
            }
        )
        size = slice_size(len(self._events), self._seconds)
        began = time.monotonic()
        for start in range(0, len(self._events), size):
            if self._stopping.is_set():
                return
            for event in self._events[start : start + size]:
                producer.produce(
                    self._topic, event.value, event.key, timestamp=event.time_ms, on_delivery=self._delivered
                )
            # A slice is complete in every partition before the next one begins: this bounds the stream's disorder.
            if producer.flush(FLUSH_TIMEOUT_S) or self._refused:
                first = self._refused[0] if self._refused else "the broker did not answer in time"
                raise LoadFailed(f"{len(self._events) - self.sent:,} events were not acknowledged: {first}")
            due = began + self._seconds * start / len(self._events)
            self._stopping.wait(max(0.0, due - time.monotonic()))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.sent += 1
        elif len(self._refused) < 10:
            self._refused.append(str(error))
