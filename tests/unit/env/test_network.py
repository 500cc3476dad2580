from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.env.network import SYSTEM_BUFFER, ListeningSocket, NetworkError, StreamSocket, listen
from support.ports import LOOPBACK
from support.waiting import wait_until


@contextmanager
def accepted(listening: ListeningSocket) -> Iterator[tuple[StreamSocket, socket.socket]]:
    """A connection to `listening`, from both ends."""
    with socket.create_connection((LOOPBACK, listening.port)) as client:
        stream = wait_until(listening.accept, "the connection to arrive")
        try:
            yield stream, client
        finally:
            stream.close()


def send_buffer_of(stream: StreamSocket) -> int:
    with socket.socket(fileno=os.dup(stream.fd)) as sock:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def test_accepted_connections_have_the_send_buffer_asked_for() -> None:
    sizes = []
    for asked in (20_000, 40_000):
        listening = listen(LOOPBACK, 0, send_buffer_bytes=asked)
        with accepted(listening) as (stream, _):
            sizes.append(send_buffer_of(stream))
        listening.close()
    # Linux doubles what is asked for, for its own bookkeeping.
    assert sizes[1] == 2 * sizes[0]
    assert sizes[0] in (20_000, 40_000)


def test_the_system_chooses_the_send_buffer_otherwise() -> None:
    with socket.socket() as plain:
        plain.bind((LOOPBACK, 0))
        usual = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    listening = listen(LOOPBACK, 0, send_buffer_bytes=SYSTEM_BUFFER)
    with accepted(listening) as (stream, _):
        assert send_buffer_of(stream) >= usual
    listening.close()


def test_no_connection_waits() -> None:
    listening = listen(LOOPBACK, 0)
    assert listening.accept() is None
    listening.close()


def test_a_port_in_use_is_named_with_its_cure() -> None:
    first = listen(LOOPBACK, 0)
    with pytest.raises(NetworkError, match=rf"cannot listen on {LOOPBACK}:{first.port}: the port is in use"):
        listen(LOOPBACK, first.port)
    first.close()


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(
        NetworkError, match=r"cannot listen on no\.such\.host\.invalid:0: the host name does not resolve"
    ):
        listen("no.such.host.invalid", 0)


def test_a_reset_connection_is_broken() -> None:
    listening = listen(LOOPBACK, 0)
    with accepted(listening) as (stream, client):
        assert not stream.is_broken()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        wait_until(stream.is_broken, "the reset to arrive")
    listening.close()


def test_a_closed_connection_is_at_its_end_once_all_is_received() -> None:
    listening = listen(LOOPBACK, 0)
    with accepted(listening) as (stream, client):
        assert not stream.is_at_end()
        client.sendall(b"last")
        client.close()
        received = memoryview(bytearray(4))
        arrivals = select.poll()  # select() takes no number above 1,023
        arrivals.register(stream.fd, select.POLLIN)
        wait_until(lambda: arrivals.poll(0), "the bytes to arrive")
        assert not stream.is_at_end()
        assert stream.recv_into(received) == 4
        wait_until(stream.is_at_end, "the end to arrive")
    listening.close()


def test_listening_on_an_address_loads_no_tables_of_idna() -> None:
    """They take a few milliseconds of every start."""
    code = "import sys; from ottla.env.network import listen; listen('127.0.0.1', 0); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert "'ottla.env.network'" in done.stdout
    assert "idna" not in done.stdout
