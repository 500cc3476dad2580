"""Expiry of sessions of other processes while no server serves the znode tree.

A ZooKeeper server that starts gives each session its whole timeout again, and ends those whose clients stay away. No
client can reconnect to a znode tree that is not served, but its ephemeral nodes must be deleted all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.env.disk import DiskError
from ottla.zk.sessions import SessionTable

if TYPE_CHECKING:
    from ottla.env.clock import Clock
    from ottla.zk.store import TreeStore
    from ottla.zk.tree import Transaction

log = logging.getLogger("ottla.zookeeper")

#: Shortest interval between two checks for expired sessions, seconds.
SHORTEST_LOOK_S = 0.02


class SessionExpiry:
    """Expires a store's sessions of other processes; `on_ended` gets the transaction of each."""

    def __init__(self, store: TreeStore, clock: Clock, on_ended: Callable[[Transaction], None]) -> None:
        self._store = store
        self._clock = clock
        self._on_ended = on_ended
        self._sessions = SessionTable()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Give each session its whole timeout from now on."""
        now_ms = self._clock.monotonic_ms()
        for session_id, session in self._store.tree.sessions.items():
            self._sessions.open(session_id, session.password, session.timeout_ms, now_ms)
        self._look_later()

    def stop(self) -> None:
        """Stop expiring sessions."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        at_ms = self._sessions.next_look_ms()
        if at_ms is not None:
            delay_s = max((at_ms - self._clock.monotonic_ms()) / 1000.0, SHORTEST_LOOK_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        for session in self._sessions.expired(self._clock.monotonic_ms()):
            try:
                ended = self._store.expire_session(session.id)
            except DiskError as error:
                log.error("the end of session 0x%x cannot be written (%s); it is tried again", session.id, error)
                self._sessions.put_off(session, self._clock.monotonic_ms())
                continue
            log.info("session 0x%x of another process has expired after %d ms", session.id, session.timeout_ms)
            self._sessions.close(session.id)
            self._on_ended(ended)
        self._look_later()
