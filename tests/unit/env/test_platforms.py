"""What is done where a system lacks something; a whole broker without it: tests/interop/testing."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ottla.env import platforms
from ottla.env.platforms import lock_file, open_files_limit, raise_open_files_limit, sendfile_to, sendmsg_of


class WithoutSendmsg:
    """A socket as Windows has it."""

    def __init__(self, sock: socket.socket) -> None:
        self.send = sock.send
        self.fileno = sock.fileno


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        yield ours, theirs


def test_parts_are_joined_without_sendmsg(pair: tuple[socket.socket, socket.socket]) -> None:
    without: Any = WithoutSendmsg(pair[0])
    assert sendmsg_of(without)((b"ab", bytearray(b"cd"), memoryview(b"ef")), (), 0) == 6
    assert pair[1].recv(100) == b"abcdef"
    assert sendmsg_of(pair[0])((b"ab", b"cd"), (), 0) == 4
    assert pair[1].recv(100) == b"abcd"


@pytest.mark.parametrize("has_sendfile", [True, False])
def test_files_are_read_without_sendfile(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, has_sendfile: bool
) -> None:
    if not has_sendfile:
        monkeypatch.delattr(os, "sendfile")
    send = sendfile_to(pair[0])
    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        assert send(file.fileno(), 2, 5) == 5
        assert pair[1].recv(100) == b"23456"
        assert send(file.fileno(), 10, 5) == 0


def test_limits_and_locks_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert platforms.has_disk()
    monkeypatch.setattr(platforms, "_resource", None)
    monkeypatch.setattr(platforms, "_fcntl", None)
    assert not platforms.has_disk()
    assert open_files_limit() == platforms.OPEN_FILES_WITHOUT_LIMITS
    raise_open_files_limit()
    with pytest.raises(OSError, match="this system has no locks that Java would see"):
        lock_file(0)


def test_a_port_is_taken_for_oneself_where_reuse_would_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Windows has the option; here SO_KEEPALIVE stands in for it.
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with closing(socket.socket()) as sock:
        platforms.take_address(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0
