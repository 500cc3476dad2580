"""A flood of small requests: PORT TOPIC PARTITIONS CONNECTIONS IN_FLIGHT. Says `flooding`, then how many were answered.

Each request appends one small record with acks=1; it ends when it is killed, or its standard input does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import loadgen
from frames import Caller, produce_frame, record_batch

from ottla.wire.apis import ApiKey

RECORD_BYTES = 100


def main() -> None:
    """Send until told to stop."""
    port, topic, partitions, connections, in_flight = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])
    batch, _ = record_batch(RECORD_BYTES, 0)
    frames = [produce_frame(topic, {index % partitions: batch}) for index in range(connections)]
    with Caller(port) as caller:
        (answer_size,) = {caller.probe(ApiKey.PRODUCE, frame) for frame in frames}
    is_over = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()

    def requests(frame: bytes) -> Iterator[bytes]:
        while not is_over.is_set():
            yield frame

    print("flooding", flush=True)
    done = loadgen.stream(port, [requests(frame) for frame in frames], answer_size, in_flight)
    print(int(done.requests / done.seconds))


if __name__ == "__main__":
    main()
