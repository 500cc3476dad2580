"""When a broker that could not be reached may be tried again, and how long the attempt may take.

Both grow with the failures in a row, less or more a fifth, as with Kafka's NetworkClient (KIP-144, KIP-601): a broker
that comes back must not be met by everybody at once.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.env.randomness import Randomness
from ottla.peer.errors import ConnectError, ConnectTimeoutError
from ottla.peer.settings import ConnectionSettings

JITTER = 0.2
"""By how much of itself a pause between two attempts varies (KIP-580)."""
MAX_DOUBLINGS = 20

Address = tuple[str, int]


def varied(pause_ms: float, randomness: Randomness) -> float:
    """A pause between two attempts, up to `JITTER` of itself longer or shorter (KIP-580)."""
    return pause_ms * randomness.between(1 - JITTER, 1 + JITTER)


class _Trouble(NamedTuple):
    """Failures in a row of one address, those among them that ran out of time, and when it may be tried again."""

    failures: int
    timeouts: int
    not_before_ms: float
    error: ConnectError


class Reconnects:
    """The failures of addresses that could not be reached. Times are those of a monotonic clock."""

    def __init__(self, settings: ConnectionSettings, randomness: Randomness) -> None:
        self._settings = settings
        self._randomness = randomness
        self._troubles: dict[Address, _Trouble] = {}

    def holds_back(self, address: Address, now_ms: float) -> ConnectError | None:
        """The last error of an address that is not to be tried again yet; None for all others."""
        trouble = self._troubles.get(address)
        if trouble is None or now_ms >= trouble.not_before_ms:
            return None
        return type(trouble.error)(str(trouble.error), retriable=trouble.error.retriable)

    def timeout_ms(self, address: Address) -> int:
        """How long the next attempt may take."""
        settings, trouble = self._settings, self._troubles.get(address)
        first, longest = settings.socket_connection_setup_timeout_ms, settings.socket_connection_setup_timeout_max_ms
        if trouble is None or not trouble.timeouts:
            return first
        return max(1, round(self._grown(first, longest, trouble.timeouts)))

    def failed(self, address: Address, now_ms: float, error: ConnectError) -> None:
        """An attempt failed."""
        before = self._troubles.get(address)
        failures, timeouts = (before.failures, before.timeouts) if before is not None else (0, 0)
        settings = self._settings
        pause_ms = self._grown(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, failures)
        timeouts = timeouts + 1 if isinstance(error, ConnectTimeoutError) else 0
        self._troubles[address] = _Trouble(failures + 1, timeouts, now_ms + pause_ms, error)

    def succeeded(self, address: Address) -> None:
        """The address was reached."""
        self._troubles.pop(address, None)

    def _grown(self, first: float, longest: float, doublings: int) -> float:
        grown = varied(first * 2.0 ** min(doublings, MAX_DOUBLINGS), self._randomness)
        return min(grown, max(first, longest))
