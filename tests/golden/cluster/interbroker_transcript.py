"""Recorded exchanges between brokers as text that anybody can read, and as lines of JSON that keep every byte.

Frames are read by the interpreter of Apache Kafka's own definitions (`interop.wire_json`), not by `ottla.wire`.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interop.wire_json import Definitions, Reader, within
from support.recording_tap import Exchange
from support.zk_transaction_log import Written

FETCH = 1
API_VERSIONS = 18


class ByBroker(NamedTuple):
    """A write to ZooKeeper, and who did it."""

    who: str
    what: Written


def to_lines(exchanges: Iterable[Exchange]) -> str:
    """A line of JSON for each exchange."""
    return "".join(
        json.dumps(
            {
                "asked": one.asked,
                "answered": one.answered,
                "from": one.sender,
                "to": one.receiver,
                "connection": one.connection,
                "api_key": one.api_key,
                "api_version": one.api_version,
                "request": one.request.hex(),
                "response": one.response.hex(),
            }
        )
        + "\n"
        for one in exchanges
    )


def from_lines(path: Path) -> list[Exchange]:
    """What `to_lines` wrote."""
    return [
        Exchange(
            asked=one["asked"],
            at_ms=0,
            connection=one["connection"],
            sender=one["from"],
            receiver=one["to"],
            api_key=one["api_key"],
            api_version=one["api_version"],
            correlation_id=int(one["request"][8:16], 16),
            request=bytes.fromhex(one["request"]),
            answered=one["answered"],
            response=bytes.fromhex(one["response"]),
        )
        for one in map(json.loads, path.read_text().splitlines())
    ]


class Decoder:
    """Bodies of requests and responses, by Apache Kafka's definitions."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def name(self, exchange: Exchange) -> str:
        return self._definitions.keys[exchange.api_key]

    def request(self, exchange: Exchange) -> dict[str, Any]:
        reader = Reader(exchange.request)
        reader.take(8)
        reader.take(max(reader.number("int16"), 0))
        name = f"{self.name(exchange)}Request"
        if within(exchange.api_version, self._definitions.message(name).flexible):
            _skip_tags(reader)
        return self._definitions.decode(name, exchange.api_version, exchange.request[reader.position :])

    def response(self, exchange: Exchange) -> dict[str, Any]:
        reader = Reader(exchange.response)
        reader.take(4)
        name = f"{self.name(exchange)}Response"
        flexible = within(exchange.api_version, self._definitions.message(name).flexible)
        if flexible and exchange.api_key != API_VERSIONS:
            _skip_tags(reader)
        return self._definitions.decode(name, exchange.api_version, exchange.response[reader.position :])

    def is_idle(self, exchange: Exchange) -> bool:
        """Whether it is a fetch in a session that asks for what it asked before, and gets nothing.

        Followers do so twice a second.
        """
        if exchange.api_key != FETCH or not exchange.answered:
            return False
        asked, got = self.request(exchange), self.response(exchange)
        return not (asked["topics"] or asked["forgotten_topics_data"] or got["responses"] or got["error_code"])


def _skip_tags(reader: Reader) -> None:
    for _ in range(reader.varint()):
        reader.varint()
        reader.take(reader.varint())


def without_idle_fetches(decoder: Decoder, exchanges: Sequence[Exchange]) -> tuple[list[Exchange], int]:
    """Those to be kept, and how many idle fetches were left out; the first of each sender and receiver stays."""
    kept = []
    seen: set[tuple[str, int]] = set()
    for one in exchanges:
        pair = (one.sender, one.receiver)
        if not decoder.is_idle(one):
            kept.append(one)
        elif pair not in seen:
            seen.add(pair)
            kept.append(one)
    return kept, len(exchanges) - len(kept)


def transcript(decoder: Decoder, exchanges: Sequence[Exchange], written: Sequence[ByBroker], began_ms: int) -> str:
    """Every frame and every write to ZooKeeper in its order, with the milliseconds since `began_ms`.

    Frames have their place, sender, receiver, API and version. ZooKeeper's own clock places what was written there.
    """
    events = [(one.at_ms, one.asked, _frame(decoder, one, began_ms, is_request=True)) for one in exchanges]
    events += [
        (one.answered_at_ms, one.answered, _frame(decoder, one, began_ms, is_request=False))
        for one in exchanges
        if one.answered
    ]
    for one in written:
        head = f"   zk {one.what.at_ms - began_ms:6} ms  {one.who} writes {one.what.zxid}"
        events.append((one.what.at_ms, 0, "\n".join([head, *(f"        {text}" for text in one.what.operations)])))
    return "".join(f"{text}\n" for _, _, text in sorted(events))


def _frame(decoder: Decoder, one: Exchange, began_ms: int, *, is_request: bool) -> str:
    name = f"{decoder.name(one)} {one.api_version}"
    if is_request:
        head = f"{one.asked:5} {one.at_ms - began_ms:6} ms  {one.sender} -> {one.receiver}  {name}"
        head += f"  (connection {one.connection}, id {one.correlation_id})"
        fields = decoder.request(one)
    else:
        head = f"{one.answered:5} {one.answered_at_ms - began_ms:6} ms  {one.sender} <- {one.receiver}  {name}"
        head += f"  (to {one.asked})"
        fields = decoder.response(one)
        if one.api_key == API_VERSIONS:
            return f"{head} error_code={fields['error_code']} {len(fields['api_keys'])} APIs"
    return "\n".join([head, *shown(fields, "        ")])


def shown(fields: dict[str, Any], indent: str) -> list[str]:
    """Plain fields on one line, nested ones below it, a line for each element that fits on one."""
    plain = {name: value for name, value in fields.items() if not _is_nested(value)}
    lines = [indent + " ".join(f"{name}={_text(value)}" for name, value in plain.items())] if plain else []
    for name, value in fields.items():
        if not _is_nested(value):
            continue
        lines.append(f"{indent}{name}:")
        for element in [value] if isinstance(value, dict) else value:
            lines += _element(element, indent + "  ")
    return lines


def _element(element: dict[str, Any], indent: str) -> list[str]:
    if set(element) == {"port", "host", "listener", "security_protocol"}:
        return [f"{indent}- {element['listener']}://{element['host']}:{element['port']}"]
    lines = shown(element, indent + "  ")
    return [f"{indent}- {lines[0].strip()}", *lines[1:]]


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _text(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return json.dumps(value)
