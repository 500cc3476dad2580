"""Whether brokers know their controller and each other: only then can topics be made. Metadata 1, written by hand.

The harness judges our own wire code, so it does not use it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection

from support.waiting import wait_until

TIMEOUT_S = 5.0
KNOWN_TIMEOUT_S = 120.0
METADATA = 3
VERSION = 1
#: Header (key, version, correlation id, client id) and an empty array of topics.
REQUEST = struct.pack(">hhihi", METADATA, VERSION, 0, -1, 0)


def knows_its_controller(host: str, port: int) -> bool:
    """Whether the broker at `host:port` answers Metadata with a live controller; False as long as it does not."""
    brokers, controller = _answered(host, port)
    return controller in brokers


def wait_until_all_are_known(bootstraps: Collection[str]) -> None:
    """Until each of these brokers lists all of them, as the controller takes a new broker in a while after its start.

    Before that, a new topic has no leader and no replica in sync there.
    """

    def all_are_known() -> bool:
        found = [_answered(host, int(port)) for host, _, port in (each.rpartition(":") for each in bootstraps)]
        return all(controller in brokers and len(brokers) >= len(bootstraps) for brokers, controller in found)

    wait_until(all_are_known, f"{len(bootstraps)} brokers in the metadata of each", KNOWN_TIMEOUT_S, 0.05)


def _answered(host: str, port: int) -> tuple[list[int], int]:
    """The ids of the brokers and of the controller; none where the broker does not answer."""
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(REQUEST)) + REQUEST)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                return brokers_and_controller(stream.read(size))
    except (OSError, struct.error):
        return [], -1


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
