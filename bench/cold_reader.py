"""Reads a topic through a broker while its files are cold: PORT TOPIC_ID PARTITIONS BATCHES RECORDS ANSWER_BYTES FILES…

Each partition holds BATCHES batches of RECORDS records; one is asked for at a time, and its answer is counted and not
looked at, so that this process costs next to nothing. Says `reading` after the first answer, ends when its standard
input does, and says then how many bytes it got. The files are dropped from the page cache before each pass.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from frames import HOST, fetch_frame

SIZE_FIELD = 4
RECEIVE_BUFFER = 256 * 1024
FETCH_BYTES = 1024 * 1024


def cool(paths: list[str]) -> None:
    """Force files to disk and drop them from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def frames(topic_id: uuid.UUID, partitions: int, batches: int, records: int) -> Iterator[bytes]:
    """A request for each batch, partition by partition."""
    for partition in range(partitions):
        for batch in range(batches):
            yield fetch_frame(topic_id, partition, batch * records, FETCH_BYTES)


def main() -> None:
    """Read until told to stop."""
    port, topic_id = int(sys.argv[1]), uuid.UUID(sys.argv[2])
    partitions, batches, records, answer_bytes = map(int, sys.argv[3:7])
    files = sys.argv[7:]
    requests = list(frames(topic_id, partitions, batches, records))
    buffer = bytearray(RECEIVE_BUFFER)
    total = 0
    with socket.create_connection((HOST, port)) as sock:
        for turn in itertools.cycle(range(len(requests))):
            if select.select([sys.stdin], [], [], 0)[0]:
                break
            if turn == 0:
                cool(files)
            sock.sendall(requests[turn])
            left = SIZE_FIELD + answer_bytes
            while left:
                received = sock.recv_into(buffer, min(left, len(buffer)))
                if not received:
                    raise SystemExit("the broker closed the connection")
                left -= received
            total += answer_bytes
            if total == answer_bytes:
                print("reading", flush=True)
    print(total)


if __name__ == "__main__":
    main()
