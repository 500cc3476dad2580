"""Frames for the fuzzer: requests of every API and version by their declarations, most of them damaged then."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache

from e2e.valid_requests import Maker
from ottla.broker.served import SERVED
from ottla.wire.codec import encode
from ottla.wire.errors import WireError
from ottla.wire.framing import RequestHeader, encode_request_frame

SIZE_BYTES = 4
#: Numbers that stand where lengths and counts are, in all their encodings.
ABSURD = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x00\x00\x00\x00",
)


class State(Enum):
    """How far a connection has come."""

    PLAINTEXT = "plaintext"
    BEFORE_LOGIN = "before login"
    AFTER_LOGIN = "after login"


@dataclass(frozen=True, slots=True)
class FuzzCase:
    """What is sent on a connection; its number and the run's seed make it again."""

    number: int
    state: State
    key: int
    version: int
    #: What was done to the frame.
    damage: str
    sent: bytes


@cache
def targets() -> list[tuple[int, int]]:
    """Every API and version that the broker serves."""
    return [
        (key, version)
        for key, served in SERVED.items()
        for version in range(served.min_version, served.max_version + 1)
    ]


def case(seed: int, number: int) -> FuzzCase:
    """The case of this number: all APIs, versions and states take turns."""
    chance = random.Random(f"{seed}-{number}")
    states = list(State)
    state = states[number % len(states)]
    key, version = targets()[number // len(states) % len(targets())]
    frame = _sound(chance, key, version)
    name, damage = chance.choice(DAMAGES)
    return FuzzCase(number, state, key, version, name, damage(chance, frame))


def _sound(chance: random.Random, key: int, version: int) -> bytes:
    header = RequestHeader(key, version, chance.getrandbits(31), chance.choice(("fuzz", "", "x" * 200)))
    absurd = chance.random() < 0.6
    for _ in range(20):
        try:
            return encode_request_frame(header, encode(Maker(chance, absurd=absurd).request(key, version), version))
        except (WireError, ValueError):  # a string that is too long for this version
            continue
    return encode_request_frame(header, encode(Maker(chance).request(key, version), version))


def _sized(body: bytes) -> bytes:
    return len(body).to_bytes(SIZE_BYTES, "big") + body


def _none(chance: random.Random, frame: bytes) -> bytes:
    return frame


def _bits(chance: random.Random, frame: bytes) -> bytes:
    damaged = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        damaged[chance.randrange(SIZE_BYTES, len(frame))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def _absurd_number(chance: random.Random, frame: bytes) -> bytes:
    absurd, at = chance.choice(ABSURD), chance.randrange(SIZE_BYTES, len(frame))
    return _sized((frame[:at] + absurd + frame[at + len(absurd) :])[SIZE_BYTES:])


def _behind_the_header(chance: random.Random, frame: bytes) -> bytes:
    """A huge count with as many bytes behind it as fit in a small request."""
    at = chance.randrange(SIZE_BYTES + 8, len(frame) + 1)
    filler = chance.choice((b"\0", b"\1", b"\xff", b"\x01\x00")) * chance.randrange(20_000)
    return _sized(frame[SIZE_BYTES:at] + chance.choice((b"", b"\0\0\x40\0", b"\x80\x80\1")) + filler)


def _cut(chance: random.Random, frame: bytes) -> bytes:
    return _sized(frame[SIZE_BYTES : chance.randrange(SIZE_BYTES, len(frame))])


def _put_in(chance: random.Random, frame: bytes) -> bytes:
    at = chance.randrange(SIZE_BYTES, len(frame) + 1)
    return _sized(frame[SIZE_BYTES:at] + chance.randbytes(chance.randint(1, 40)) + frame[at:])


def _taken_out(chance: random.Random, frame: bytes) -> bytes:
    at = chance.randrange(SIZE_BYTES, len(frame))
    return _sized(frame[SIZE_BYTES:at] + frame[at + chance.randint(1, 8) :])


def _wrong_size(chance: random.Random, frame: bytes) -> bytes:
    size = chance.choice((0, 1, 7, len(frame), 2**31 - 1, -1, -(2**31), 600_000, 2**20))
    return size.to_bytes(SIZE_BYTES, "big", signed=True) + frame[SIZE_BYTES:]


def _unfinished(chance: random.Random, frame: bytes) -> bytes:
    return frame[: chance.randrange(1, len(frame))]


def _noise(chance: random.Random, frame: bytes) -> bytes:
    return _sized(chance.randbytes(chance.choice((0, 1, 8, 30, 300))))


Damage = Callable[[random.Random, bytes], bytes]
DAMAGES: list[tuple[str, Damage]] = [
    *[("none", _none)] * 8,
    *[("bits", _bits)] * 4,
    *[("absurd number", _absurd_number)] * 4,
    ("many elements", _behind_the_header),
    *[("cut", _cut)] * 2,
    ("put in", _put_in),
    ("taken out", _taken_out),
    ("wrong size", _wrong_size),
    ("unfinished", _unfinished),
    ("noise", _noise),
]
