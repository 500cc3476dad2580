"""Diagnosis of an address that does not answer like a Kafka broker on a PLAINTEXT listener.

A broker that wants TLS, one that is older than ApiVersions (Apache Kafka before 0.10), or a ZooKeeper just hangs up,
and a web server may wait for the end of a line: that says nothing. So the address is asked once more, in the languages
of these, and only after a first contact has failed.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from contextlib import suppress
from enum import Enum
from typing import Any

from ottla.env.futures import settle
from ottla.env.outgoing import Network, Stream
from ottla.peer.errors import ConnectError
from ottla.peer.hosts import connect_to_host
from ottla.peer.tls import TlsStream

PROBE_TIMEOUT_S = 1.0
MAX_ANSWER_BYTES = 64 * 1024
"""Largest response that is read; no list of SASL mechanisms is larger."""
SCRATCH_BYTES = 4096
CORRELATION_ID = 0x6F74746C

_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
_SIZE_AND_ID = struct.Struct(">ii")
TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""First bytes of an alert and of a handshake record, in any version of TLS."""

HTTP_QUESTION, HTTP_ANSWER = b"GET / HTTP/1.0\r\n\r\n", b"HTTP"
ZOOKEEPER_QUESTION = b"srvr"
"""One of ZooKeeper's four-letter words: it is the only one that each ZooKeeper may answer by default."""
ZOOKEEPER_ANSWERS = (b"Zookeeper version", b"srvr is not execu", b"This ZooKeeper in")
"""The first bytes of its answer: the figures, that the word is not on its list, or that it has no quorum."""

METADATA, SASL_HANDSHAKE, API_VERSIONS = 3, 17, 18
ILLEGAL_SASL_STATE = 34
"""Error code of SaslHandshake on a listener without SASL."""


class Found(Enum):
    """Result of a diagnosis."""

    TLS = "a TLS listener"
    PLAIN_TEXT = "a broker's listener for plain text"
    OLD_BROKER = "a broker of Apache Kafka 0.8 or 0.9"
    WEB_SERVER = "a web server"
    ZOOKEEPER = "a ZooKeeper"
    NOTHING = "something else"


class _FirstBytes:
    """Sends a question and receives the first bytes of the answer.

    That is up to `most` bytes, fewer where the connection ends or a whole frame is there.
    """

    def __init__(self, question: bytes, most: int) -> None:
        self._question = question
        self._most = most
        self._buffer = bytearray(most)
        self._count = 0
        self._stream: Stream | None = None
        #: Why the connection ended.
        self.error: Exception | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def received(self) -> bytes:
        return bytes(self._buffer[: self._count])

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        if self._question:
            stream.write([self._question])

    def close(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def get_buffer(self, sizehint: int, /) -> memoryview:
        if self.ended.done():
            return memoryview(bytearray(SCRATCH_BYTES))  # whatever comes now is not wanted
        return memoryview(self._buffer)[self._count :]

    def buffer_updated(self, nbytes: int, /) -> None:
        if self.ended.done():
            return
        self._count += nbytes
        if self._count >= min(self._most, _frame_size(self._buffer[: self._count])):
            settle(self.ended, None)

    def writable(self) -> None:
        """The question is short."""

    def disconnected(self, error: Exception | None) -> None:
        self.error = error
        settle(self.ended, None)


async def diagnose(network: Network, host: str, port: int) -> Found:
    """Find out what listens there, within twice PROBE_TIMEOUT_S. Raises nothing for what it meets."""
    hello, metadata, versions = await asyncio.gather(
        _answer(network, host, port, _client_hello(), 2),
        _answer(network, host, port, _request(METADATA, 0, struct.pack(">i", 0)), _SIZE_AND_ID.size),
        _answer(network, host, port, _request(API_VERSIONS, 0, b""), _SIZE_AND_ID.size),
    )
    if hello in TLS_RECORDS:
        return Found.TLS
    if _is_ours(versions):
        return Found.PLAIN_TEXT
    if _is_ours(metadata):
        return Found.OLD_BROKER
    # Not before: a broker logs them as frames of an invalid size.
    web, zookeeper = await asyncio.gather(
        _answer(network, host, port, HTTP_QUESTION, len(HTTP_ANSWER)),
        _answer(network, host, port, ZOOKEEPER_QUESTION, len(ZOOKEEPER_ANSWERS[0])),
    )
    if zookeeper in ZOOKEEPER_ANSWERS:
        return Found.ZOOKEEPER
    return Found.WEB_SERVER if web == HTTP_ANSWER else Found.NOTHING


async def refusal_in_tls(network: Network, host: str, port: int, tls: TlsStream[Any]) -> ConnectError | None:
    """The alert with which a broker ends TLS; None without one. Raises nothing for what it meets.

    A broker refuses a client's certificate after the handshake of TLS 1.3. A client that has sent a request by then may
    get a reset in place of the alert, so nothing is sent here.
    """
    silent = tls.another(_FirstBytes(b"", 1))
    with suppress(OSError):  # a TimeoutError is one
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            await connect_to_host(network, host, port, lambda: silent, PROBE_TIMEOUT_S)
            await silent.receiver.ended
    silent.receiver.close()
    error = silent.receiver.error
    return error if isinstance(error, ConnectError) else None


async def sasl_mechanisms(
    network: Network, host: str, port: int, tls: TlsStream[Any] | None = None
) -> list[str] | None:
    """SASL mechanisms of the listener, None if it requires none. Raises nothing for what it meets."""
    body = struct.pack(">h", 0)  # a mechanism without a name, so that the response lists the others
    head = await _answer(network, host, port, _request(SASL_HANDSHAKE, 1, body), MAX_ANSWER_BYTES, tls)
    try:
        _, correlation_id, code, count = struct.unpack_from(">iihi", head)
        if correlation_id != CORRELATION_ID or code == ILLEGAL_SASL_STATE or count < 0:
            return None
        mechanisms, position = [], 14
        for _ in range(count):
            (length,) = struct.unpack_from(">h", head, position)
            position += 2
            mechanisms.append(head[position : position + length].decode("utf-8", "replace"))
            position += length
    except struct.error:
        return None
    return mechanisms


def _is_ours(head: bytes) -> bool:
    """Whether the response has our correlation id."""
    return len(head) == _SIZE_AND_ID.size and _SIZE_AND_ID.unpack(head)[1] == CORRELATION_ID


def _request(api_key: int, version: int, body: bytes) -> bytes:
    head = _HEADER.pack(api_key, version, CORRELATION_ID, 5) + b"ottla"
    return struct.pack(">i", len(head) + len(body)) + head + body


def _client_hello() -> bytes:
    """A TLS ClientHello. Nothing is sent after it, so no certificate is verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def _answer(
    network: Network, host: str, port: int, question: bytes, most: int, tls: TlsStream[Any] | None = None
) -> bytes:
    """First bytes of the response: up to `most`, fewer if the connection ends or a whole frame has arrived."""

    def receiver() -> _FirstBytes | TlsStream[_FirstBytes]:
        first = _FirstBytes(question, most)
        return first if tls is None else tls.another(first)

    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            made = await connect_to_host(network, host, port, receiver, PROBE_TIMEOUT_S)
            answer = made.receiver if isinstance(made, TlsStream) else made
            try:
                await answer.ended
            finally:
                answer.close()
    except OSError:  # a TimeoutError is one
        return b""
    return answer.received


def _frame_size(answer: bytes | bytearray) -> int:
    """Size of the frame including its length field, as far as that has arrived."""
    return 4 + int.from_bytes(answer[:4], "big") if len(answer) >= 4 else MAX_ANSWER_BYTES
