"""Read a topic with the consumer of the ZooKeeper generation: several threads, and offsets committed after the work.

    python examples/high_level_consumer.py localhost:2181 my-group clicks 2

Start it twice and see the partitions shared out; Ctrl-C makes it leave the group. Every record is handled at least
once: after a kill those handled since the last commit come again, after a rebalance the one in work, at most.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

from ottla.client import TopicPartition
from ottla.client.errors import ClientClosedError, ClientError
from ottla.zkconsumer import ConsumerConnector, ConsumerTimeoutError, KafkaStream, create_connector

COMMIT_EVERY = 100
"""Records of one thread; an idle thread commits, too, after `consumer.timeout.ms`."""


class Application:
    """What was handled, how far that is committed, and the listener of rebalances."""

    def __init__(self, connector: ConsumerConnector) -> None:
        self.connector = connector
        self._lock = threading.Lock()
        self._handled: dict[TopicPartition, int] = {}

    def work(self, stream: KafkaStream[str, str]) -> None:
        """Handle the records of one stream until the connector is shut down."""
        count = 0
        while True:
            try:
                for message in stream:
                    line = f"{message.partition} {message.offset} {message.key} {message.value}"
                    print(f"{line}\n", end="", flush=True)  # in one piece: there are other threads
                    with self._lock:
                        self._handled[TopicPartition(message.topic, message.partition)] = message.offset + 1
                    count += 1
                    if count % COMMIT_EVERY == 0:
                        self.commit()
                return
            except ConsumerTimeoutError:
                self.commit()
            except ClientClosedError:
                return

    def commit(self) -> None:
        """Commit what was handled since the last time."""
        with self._lock:
            handled, self._handled = self._handled, {}
        if handled:
            self.connector.commit_offsets(handled)

    def before_releasing_partitions(self, owned: dict[str, set[int]]) -> None:
        """Others read on from here."""
        self.commit()

    def before_starting_fetchers(self, consumer: str, assignment: dict[str, dict[int, str]]) -> None:
        """Print which partitions this process owns now."""
        mine = [number for of_topic in assignment.values() for number, thread in of_topic.items() if consumer in thread]
        print(f"{consumer} owns {sorted(mine)}", file=sys.stderr)


def main(zookeeper: str, group: str, topic: str, threads: int = 1) -> None:
    """Until SIGTERM or Ctrl-C."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    config = {
        "zookeeper.connect": zookeeper,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "auto.commit.enable": "false",
        "consumer.timeout.ms": 500,
    }
    with create_connector(config) as connector:
        application = Application(connector)
        connector.set_rebalance_listener(application)
        streams = connector.create_message_streams({topic: threads}, "StringDeserializer", "StringDeserializer")
        for stream in streams[topic]:
            threading.Thread(target=application.work, args=(stream,), daemon=True).start()
        stop.wait()
        application.commit()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4], *map(int, sys.argv[4:5]))
    except ClientError as error:
        sys.exit(str(error))
