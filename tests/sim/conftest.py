"""Fixtures of simulations."""

from __future__ import annotations

import socket
import threading
from typing import NoReturn

import pytest

from ottla.env.clock import SystemClock
from ottla.env.randomness import Randomness


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine offers, and a simulation must not touch, raises."""

    def forbidden(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a simulation reaches outside")

    seeded = Randomness.__init__

    def with_seed(self: Randomness, seed: int | None = None) -> None:
        assert seed is not None, "randomness without a seed"
        seeded(self, seed)

    monkeypatch.setattr(threading.Thread, "start", forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    monkeypatch.setattr(socket.socket, "connect", forbidden)
    monkeypatch.setattr(socket.socket, "bind", forbidden)
    monkeypatch.setattr(SystemClock, "now_ms", forbidden)
    monkeypatch.setattr(SystemClock, "monotonic_ms", forbidden)
    monkeypatch.setattr(Randomness, "__init__", with_seed)
