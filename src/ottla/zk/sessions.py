"""Client sessions: liveness, deadlines, and reconnects. Pure: times come in.

As ZooKeeper's `SessionTracker`: a session lives as long as its client sends something within its timeout, over any
number of connections.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

FIRST_DURABLE_SESSION = 1 << 40
"""Ids from here on are sessions of other processes, which outlive this one; lower ids end with this process."""
PASSWORD_LENGTH = 16


def first_session_id(now_ms: int) -> int:
    """The first session id for a server that starts now: higher than all of earlier servers."""
    return max(((now_ms << 24) & 0xFFFFFFFFFFFFFFFF) >> 8, FIRST_DURABLE_SESSION)


class Session:
    """One session. `timeout_ms` is the negotiated one, `deadline_ms` a time of the monotonic clock."""

    __slots__ = ("deadline_ms", "id", "look_ms", "password", "timeout_ms")

    def __init__(self, session_id: int, password: bytes, timeout_ms: int, now_ms: float) -> None:
        self.id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.deadline_ms = self.look_ms = now_ms + timeout_ms

    def touch(self, now_ms: float) -> None:
        """Renew the session."""
        self.deadline_ms = now_ms + self.timeout_ms


class SessionTable:
    """All live sessions.

    Renewing one costs an assignment. The heap has a time for each session, `look_ms`, at or before its deadline, at
    which it is checked again; entries with other times are outdated.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._looks: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> Session | None:
        """The session of that id, None if it has ended or never existed."""
        return self._sessions.get(session_id)

    def open(self, session_id: int, password: bytes, timeout_ms: int, now_ms: float) -> Session:
        """A new session, or one restored after a restart: it gets its whole timeout."""
        session = self._sessions[session_id] = Session(session_id, password, timeout_ms, now_ms)
        heapq.heappush(self._looks, (session.deadline_ms, session_id))
        return session

    def reconnect(self, session_id: int, password: bytes, timeout_ms: int, now_ms: float) -> Session | None:
        """The session of a client that reconnects with its password; None if it has ended or the password is wrong.

        The timeout is negotiated again.
        """
        import hmac  # here: it takes OpenSSL with it

        session = self._sessions.get(session_id)
        if session is None or not hmac.compare_digest(session.password, password):
            return None
        session.timeout_ms = timeout_ms
        session.touch(now_ms)
        if session.deadline_ms < session.look_ms:
            self._look_later(session)
        return session

    def put_off(self, session: Session, now_ms: float) -> None:
        """Renew an expired session: its end could not be written."""
        session.touch(now_ms)
        self._look_later(session)

    def close(self, session_id: int) -> bool:
        """Remove a session; returns whether it existed."""
        return self._sessions.pop(session_id, None) is not None

    def expired(self, now_ms: float) -> list[Session]:
        """The sessions whose deadline has passed, in the order of their deadlines. The caller closes them."""
        found: list[Session] = []
        looks = self._looks
        while looks and looks[0][0] <= now_ms:
            look_ms, session_id = heapq.heappop(looks)
            session = self._sessions.get(session_id)
            if session is None or session.look_ms != look_ms:
                continue
            if session.deadline_ms <= now_ms:
                found.append(session)
            else:
                self._look_later(session)
        return sorted(found, key=lambda session: session.deadline_ms)

    def _look_later(self, session: Session) -> None:
        session.look_ms = session.deadline_ms
        heapq.heappush(self._looks, (session.look_ms, session.id))

    def next_look_ms(self) -> float | None:
        """When to check for expired sessions next; None without sessions."""
        return self._looks[0][0] if self._looks else None
