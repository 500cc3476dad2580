"""How kazoo waits for its sockets here."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from ottla.zk.kazoo_quiet import DirectHandler

pytestmark = pytest.mark.spec("Z2")

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("has_poll", [True, False], ids=["poll", "a platform without it"])
def test_what_is_ready_is_returned(pair: Pair, has_poll: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_poll:
        monkeypatch.delattr("ottla.zk.kazoo_quiet.select.poll")
    ours, theirs = pair
    wait = DirectHandler().select
    assert wait([ours, theirs], [], [], 0.0) == ([], [], [])
    assert wait([], [ours], [], None) == ([], [ours], [])
    theirs.send(b"x")
    assert wait([ours, theirs], [], [], 60.0) == ([ours], [], [])


def test_a_wait_ends_with_its_time(pair: Pair) -> None:
    began_s = time.monotonic()
    assert DirectHandler().select([pair[0]], [], [], 0.02) == ([], [], [])
    assert time.monotonic() - began_s >= 0.02


def test_an_end_of_the_connection_is_something_to_read(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    assert DirectHandler().select([ours], [], [], 60.0) == ([ours], [], [])
    assert ours.recv(1) == b""


def test_a_closed_socket_is_refused(pair: Pair) -> None:
    ours, _ = pair
    ours.close()
    with pytest.raises(ValueError, match="negative"):
        DirectHandler().select([ours], [], [], 60.0)
