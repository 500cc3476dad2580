"""DER, as far as certificates and key stores need it. Pure: no access to the outside."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

SEQUENCE, OCTET_STRING, OBJECT_ID = 0x30, 0x04, 0x06
_VERSION, _UTC_TIME = 0xA0, 0x17
MAX_LENGTH_OCTETS = 4


class DerError(ValueError):
    """The bytes are not DER, or not of the expected structure."""


class Element(NamedTuple):
    """One element: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


class Certificate(NamedTuple):
    """The parts of an X.509 certificate that matter here; names are in DER."""

    issuer: bytes
    subject: bytes
    expires: datetime


def elements(data: bytes) -> Iterator[Element]:
    """The elements that follow each other in `data`. Raises DerError."""
    start = 0
    while start < len(data):
        at = start + 2
        if at > len(data):
            raise DerError("the data ends in the middle of an element")
        tag, length = data[start], data[start + 1]
        if length & 0x80:
            octets = length & 0x7F
            if not 0 < octets <= MAX_LENGTH_OCTETS:
                raise DerError(f"a length of {octets} octets")
            length = int.from_bytes(data[at : at + octets], "big")
            at += octets
        if at + length > len(data):
            raise DerError("the data ends in the middle of an element")
        yield Element(tag, data[at : at + length], data[start : at + length])
        start = at + length


def sequence(data: bytes) -> list[Element]:
    """The elements of the sequence that `data` begins with. Raises DerError."""
    first = next(elements(data), None)
    if first is None or first.tag != SEQUENCE:
        raise DerError("the data does not begin with a sequence")
    return list(elements(first.content))


def object_id(content: bytes) -> str:
    """An object identifier in its dotted form."""
    arcs, arc = [], 0
    for octet in content:
        arc = arc << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(arc)
            arc = 0
    if not arcs:
        raise DerError("an empty object identifier")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def certificate(data: bytes) -> Certificate:
    """Read a certificate. Raises DerError."""
    try:
        fields = sequence(sequence(data)[0].whole)
        if fields[0].tag == _VERSION:
            del fields[0]
        issuer, validity, subject = fields[2:5]
        _, expires = sequence(validity.whole)
        text = expires.content.decode("ascii")
        if expires.tag == _UTC_TIME:
            text = ("19" if text[:2] >= "50" else "20") + text
        moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, ValueError) as error:
        raise DerError("the bytes are not a certificate") from error
    return Certificate(issuer.whole, subject.whole, moment)
