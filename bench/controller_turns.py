"""How long the controller of a large cluster holds the loop, event by event.

    ./run bench controller_turns [PARTITIONS ..]

Three brokers, topics of 100 partitions, three replicas each. Every event is handled by the state machine alone, whose
writes and notices succeed; then the largest control requests are made into messages and encoded. Processor time, least
of three runs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from uuid import UUID

from ottla.broker.control.channels.messages import ControlMessages
from ottla.broker.slices import LoopSlices
from ottla.cluster import controller_events as events
from ottla.cluster.control_batches import LeaderAndIsrBatch, UpdateMetadataBatch
from ottla.cluster.controller import Controller
from ottla.cluster.image import BrokerImage, ClusterImage
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.wire.codec import encode

BROKERS = 3
PER_TOPIC = 100
RUNS = 3
VERSIONS = {LeaderAndIsrBatch: 7, UpdateMetadataBatch: 8}

Turns = dict[str, list[float]]


def live(**epochs: int) -> dict[int, events.LiveBroker]:
    """The brokers 1 to 3, in the registrations that are given: `b3=9`; 0 is dead."""
    found = {number: epochs.get(f"b{number}", 1) for number in range(1, BROKERS + 1)}
    return {number: events.LiveBroker(BrokerImage(number, ()), epoch) for number, epoch in found.items() if epoch}


def topics(partitions: int) -> list[events.FoundTopic]:
    """Topics as they are found in the znodes, all replicas in sync."""
    orders = [tuple(1 + (first + place) % BROKERS for place in range(BROKERS)) for first in range(BROKERS)]
    states = [events.FoundPartitionState(order, order[0], 0, order, 0) for order in orders]
    one = tuple(states[index % BROKERS] for index in range(PER_TOPIC))
    return [
        events.FoundTopic(f"topic-{number}", UUID(int=number + 1), UUID(int=number + 1), one, {}, False)
        for number in range(partitions // PER_TOPIC)
    ]


class Play:
    """A controller whose writes and notices succeed, and how long each of its turns took, in milliseconds."""

    def __init__(self, partitions: int) -> None:
        config = parse_broker_config({"broker.id": "1"})
        assert isinstance(config, BrokerConfig)
        self.controller = Controller(1, config)
        self.turns: Turns = defaultdict(list)
        self.largest: dict[type, events.SendToBroker] = {}
        self.handle("elected", events.Elected(1, live(), topics(partitions), ClusterImage()))
        self.handle("a broker dies", events.BrokersChanged(live(b3=0)))
        self.handle("it comes back", events.BrokersChanged(live(b3=9)))
        self.handle("another one shuts down", events.ShutdownRequested(1, 2, 1))

    def handle(self, name: str, event: events.Event) -> None:
        """Handle an event, and all that comes of it."""
        waiting = [event]
        while waiting:
            now = waiting.pop(0)
            began = time.process_time()
            effects = self.controller.handle_in_slices(now, 0)
            self.turns[name].append((time.process_time() - began) * 1000)
            for effect in effects:
                if isinstance(effect, events.Write):
                    waiting.append(events.Written(effect.write_id))
                elif isinstance(effect, events.Notify):
                    waiting.append(events.Notified(effect.notify_id))
                elif isinstance(effect, events.Continue):
                    waiting.append(events.Continued(effect.continuation_id))
                elif isinstance(effect, events.SendToBroker):
                    self._keep_largest(effect)

    def _keep_largest(self, sent: events.SendToBroker) -> None:
        for request in sent.requests:
            if isinstance(request, LeaderAndIsrBatch | UpdateMetadataBatch):
                known = self.largest.get(type(request))
                if known is None or len(request.entries) > len(known.requests[0].entries):
                    self.largest[type(request)] = sent._replace(requests=(request,))

    def encode(self) -> Mapping[str, float]:
        """How long the encoding of the largest requests takes, each in one turn."""
        messages = ControlMessages(1, "PLAINTEXT", LoopSlices(lambda: time.monotonic() * 1000))
        took = {}
        for kind, sent in self.largest.items():
            message = asyncio.run(messages.make(sent, sent.requests[0]))
            began = time.process_time()
            encode(message, VERSIONS[kind])
            took[f"{kind.__name__.removesuffix('Batch')} is encoded"] = (time.process_time() - began) * 1000
        return took


def main(sizes: list[int]) -> None:
    for partitions in sizes:
        plays = [Play(partitions) for _ in range(RUNS)]
        print(f"{partitions} partitions on {BROKERS} brokers: longest turn, all turns together, ms; number of turns")
        for name in plays[0].turns:
            longest = min(max(play.turns[name]) for play in plays)
            total = min(sum(play.turns[name]) for play in plays)
            print(f"  {name:28} {longest:8.1f} {total:8.1f} {len(plays[0].turns[name]):5}")
        encodings = [play.encode() for play in plays]
        for name in encodings[0]:
            print(f"  {name:28} {min(each[name] for each in encodings):8.1f}")


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [10_000, 100_000])
