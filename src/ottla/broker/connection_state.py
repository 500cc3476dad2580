"""The broker's state for one connection, and the delayed operation that its request may wait in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.authentication import SaslSession
    from ottla.net.connection import Principal


class DelayedOperation:
    """A delayed operation, as its connection sees it."""

    __slots__ = ()

    def cancel(self) -> None:
        """Drop the operation without a response: the client has disconnected."""
        raise NotImplementedError


class ConnectionState:
    """The broker's state for one connection, kept between requests."""

    __slots__ = ("expired", "login", "pending", "software_name", "software_version")

    def __init__(self) -> None:
        self.software_name = ""
        self.software_version = ""
        #: The delayed operation that the connection's request waits in; cancelled when the client disconnects.
        self.pending: DelayedOperation | None = None
        #: The SASL exchange of the client, or its session.
        self.login: SaslSession | None = None
        #: The principal whose session is over; the connection itself has none then.
        self.expired: Principal | None = None
