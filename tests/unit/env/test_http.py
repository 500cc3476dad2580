"""Exchanges by HTTP: answers, errors, and limits of size and time."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.env.http import MAX_ANSWER_BYTES, HttpError, HttpRequest, exchange, in_own_thread
from support.ports import free_port


@contextmanager
def server(*pieces: bytes, stays: bool = False) -> Iterator[str]:
    """Answers the first connection with these bytes."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                while stays and not ended.wait(0.01):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/path?query"
        ended.set()
        thread.join(10)


def test_an_answer() -> None:
    with server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as url:
        assert exchange(HttpRequest(url)) == b"hi"


def test_an_error_has_its_status() -> None:
    with server(b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nhi") as url, pytest.raises(HttpError) as raised:
        exchange(HttpRequest(url, body=b"secret"))
    assert (raised.value.status, raised.value.body) == (401, b"hi")
    assert "secret" not in str(raised.value)


def test_what_a_server_says_is_short_and_moves_no_cursor() -> None:
    for line in (b"HTTP/1.1 401 ", b""):
        said = line + b"\x1b[2J" + b"x" * 5000 + b"\r\nContent-Length: 0\r\n\r\n"
        with server(said) as url, pytest.raises(HttpError) as raised:
            exchange(HttpRequest(url))
        assert "\\x1b[2J" in str(raised.value)
        assert "\x1b" not in str(raised.value)
        assert len(str(raised.value)) < 300


def test_redirects_are_not_followed() -> None:
    redirect = b"HTTP/1.1 302 F\r\nLocation: http://169.254.0.1/\r\nContent-Length: 0\r\n\r\n"
    with server(redirect) as url, pytest.raises(HttpError, match="the answer is 302"):
        exchange(HttpRequest(url))


def test_an_answer_that_is_too_large() -> None:
    large = b"x" * (MAX_ANSWER_BYTES + 1)
    with server(b"HTTP/1.1 200 OK\r\n\r\n", large) as url, pytest.raises(HttpError, match="more than"):
        exchange(HttpRequest(url))


@pytest.mark.spec("S5")
@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_drips_is_left(begun: bytes) -> None:
    with server(begun, stays=True) as url, pytest.raises(HttpError, match="no whole answer in time"):
        exchange(HttpRequest(url, read_timeout_ms=150))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999999/", "http://a b/", "http://127.0.0.1:{port}/", "http://127.0.0.1:{port}/a b"]
)
def test_addresses_that_do_not_answer(url: str) -> None:
    with pytest.raises(HttpError):
        exchange(HttpRequest(url.format(port=free_port())))


def test_what_a_thread_raises_reaches_its_loop() -> None:
    async def run() -> int:
        with pytest.raises(HttpError, match="for a test"):
            await in_own_thread(fail, 60)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await in_own_thread(lambda: next(iter(())), 60)
        with pytest.raises(TimeoutError):
            await in_own_thread(ended.wait, 0.01)
        ended.set()
        return await in_own_thread(lambda: 5, 60)

    ended = threading.Event()

    def fail() -> None:
        raise HttpError("for a test")

    assert asyncio.run(run()) == 5
