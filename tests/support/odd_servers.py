"""Servers that are not what a client hopes for: what people connect to by mistake, in small."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import subprocess
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from ottla.wire.connection import FrameRefusal, ServerProtocol
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
MAX_REQUEST_BYTES = 1024 * 1024
API_VERSIONS, METADATA, SASL_HANDSHAKE = 18, 3, 17


class OddServers:
    """Starts servers on free ports of 127.0.0.1; `close` stops them all."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="odd-servers", daemon=True)
        self._thread.start()

    def start(self, serve: Serve, tls: ssl.SSLContext | None = None) -> int:
        """The port of a server whose connections `serve` handles."""
        return asyncio.run_coroutine_threadsafe(self._start(serve, tls), self._loop).result(60)

    async def _start(self, serve: Serve, tls: ssl.SSLContext | None) -> int:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await serve(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop all."""

        async def end() -> None:
            for server in self._servers:
                server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hangs up at once."""


async def hanging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads and never answers."""
    await reader.read()


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers as web servers do to what they cannot read."""
    await reader.read(1000)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


async def patient_web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Waits for the end of a line before it answers, as Python's own web server does."""
    await reader.readuntil(b"\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\n\r\n")


async def zookeeper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers the one word that ZooKeeper allows by default, and hangs up on what is no request for a session."""
    if await reader.readexactly(4) == b"srvr":
        writer.write(b"Zookeeper version: 3.8.4-9316c2a7a97e1666d8f4593f34dd6fc36ecc436c, built on 2024-02-12\n")


async def closed_zookeeper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As `zookeeper`, with a list that has no word."""
    if await reader.readexactly(4) == b"srvr":
        writer.write(b"srvr is not executed because it is not in the whitelist.\n")


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if size > MAX_REQUEST_BYTES:
        raise asyncio.IncompleteReadError(b"", size)
    return await reader.readexactly(size)


async def kafka_0_9(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As Apache Kafka 0.8 and 0.9: answers Metadata 0, and hangs up on what it does not know, as on ApiVersions."""
    while True:
        api_key, version, correlation_id = struct.unpack_from(">hhi", await _frame(reader))
        if (api_key, version) != (METADATA, 0):
            return
        body = struct.pack(">ii", 0, 0)
        writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)


async def kafka_0_10(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As Apache Kafka 0.10: ApiVersions 0 only, other versions of it are refused without a list; Metadata up to 2."""
    apis = [(0, 0, 2), (1, 0, 3), (2, 0, 1), (3, 0, 2), (17, 0, 0), (18, 0, 0)]
    while True:
        api_key, version, correlation_id = struct.unpack_from(">hhi", await _frame(reader))
        if api_key != API_VERSIONS:
            return
        code, told = (0, apis) if version == 0 else (35, [])
        body = struct.pack(">hi", code, len(told)) + b"".join(struct.pack(">hhh", *each) for each in told)
        writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)


async def sasl_listener(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a listener with SASL: tells its versions, then wants a login and hangs up on anything else."""
    protocol = ServerProtocol(MAX_REQUEST_BYTES)
    while True:
        frame = await _frame(reader)
        api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
        if api_key == SASL_HANDSHAKE:
            names = b"".join(struct.pack(">h", len(name)) + name for name in (b"PLAIN", b"SCRAM-SHA-256"))
            body = struct.pack(">hi", 33, 2) + names
            writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)
        elif api_key == API_VERSIONS:
            requests = protocol.receive(struct.pack(">i", len(frame)) + frame)
            assert not isinstance(requests, FrameRefusal)
            served = [ApiVersion(api_key=key, min_version=0, max_version=12) for key in (0, 1, 2, 3, 17, 18, 22)]
            writer.write(protocol.respond(ApiVersionsResponse(api_keys=served)))
        else:
            return


def tls_context(folder: Path) -> ssl.SSLContext:
    """A server's context with a certificate made for the test."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True, timeout=20,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
