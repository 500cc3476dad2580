"""A member of a group of the ZooKeeper generation, as a process that may be killed at any moment.

    python member.py ZOOKEEPER GROUP TOPIC THREADS [setting=value]...

One line a record: `got thread partition offset value`, written before the offset is committed, so that nothing is lost.
SIGTERM: it leaves the group and says `closed`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from ottla.client.errors import ClientClosedError
from ottla.client.model import TopicPartition
from ottla.zkconsumer import create_connector
from ottla.zkconsumer.commits import OffsetsNotCommittedError

COMMIT_EVERY = 20


def consume(number: int, stream: Any, connector: Any) -> None:
    """Tell of each record, and commit from time to time what was told of."""
    done: dict[TopicPartition, int] = {}
    for count, message in enumerate(stream, 1):
        line = f"got {number} {message.partition} {message.offset} {int(message.value)}\n"
        os.write(1, line.encode())  # in one piece
        done[TopicPartition(message.topic, message.partition)] = message.offset + 1
        if count % COMMIT_EVERY == 0:
            try:
                connector.commit_offsets(done)
            except OffsetsNotCommittedError as error:
                print(error, file=sys.stderr)
            except ClientClosedError:
                return
            done.clear()


def main(zookeeper: str, group: str, topic: str, threads: str, *settings: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    config = dict(setting.split("=", 1) for setting in settings)
    connector = create_connector({"zookeeper.connect": zookeeper, "group.id": group, **config})
    streams = connector.create_message_streams({topic: int(threads)})[topic]
    readers = [
        threading.Thread(target=consume, args=(number, stream, connector)) for number, stream in enumerate(streams)
    ]
    for reader in readers:
        reader.start()
    os.write(1, b"started\n")
    stop.wait()
    connector.shutdown()
    for reader in readers:
        reader.join()
    os.write(1, b"closed\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
