"""Whether a broker knows its controller: only then can topics be made. Metadata version 1, written by hand.

The harness judges our own wire code, so it does not use it.
"""

from __future__ import annotations

import socket
import struct

TIMEOUT_S = 5.0
METADATA = 3
VERSION = 1
#: Header (key, version, correlation id, client id) and an empty array of topics.
REQUEST = struct.pack(">hhihi", METADATA, VERSION, 0, -1, 0)


def knows_its_controller(host: str, port: int) -> bool:
    """Whether the broker at `host:port` answers Metadata with a live controller; False as long as it does not."""
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(REQUEST)) + REQUEST)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                brokers, controller = brokers_and_controller(stream.read(size))
    except (OSError, struct.error):
        return False
    return controller in brokers


def brokers_and_controller(response: bytes) -> tuple[list[int], int]:
    """The ids of the brokers and of the controller in a response to Metadata version 1; struct.error where cut off."""
    _, count = struct.unpack_from(">ii", response, 0)
    position = 8
    brokers = []
    for _ in range(count):
        broker, host_length = struct.unpack_from(">ih", response, position)
        position += 6 + host_length
        _, rack_length = struct.unpack_from(">ih", response, position)
        position += 6 + max(rack_length, 0)
        brokers.append(broker)
    (controller,) = struct.unpack_from(">i", response, position)
    return brokers, controller
