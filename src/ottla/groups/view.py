"""A group as handlers, metrics and tests see it: read-only, and the same for every protocol. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.groups.classic.states import GroupState
    from ottla.groups.events import Protocols
    from ottla.groups.offsets import TopicPartition
    from ottla.groups.records import StoredOffset


class MemberView(Protocol):
    """A member of a group."""

    @property
    def member_id(self) -> str:
        """Its id, a new one each time a static member starts."""

    @property
    def group_instance_id(self) -> str | None:
        """The id that a static member keeps (KIP-345)."""

    @property
    def identity(self) -> str:
        """The part of its ids that stays the same when a static member gets a new member id."""

    @property
    def client_id(self) -> str:
        """The client's name for itself."""

    @property
    def client_host(self) -> str:
        """The client's address."""

    @property
    def protocols(self) -> Protocols:
        """The protocols that it supports."""

    @property
    def assignment(self) -> bytes:
        """Its assignment in the group's protocol, empty without one."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for a protocol; KeyError (a bug) if it does not support it."""


class MembersView(Protocol):
    """The members of a group, in the order in which they joined."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[MemberView]: ...


class GroupView(Protocol):
    """A group."""

    @property
    def group_id(self) -> str:
        """Its id."""

    @property
    def state(self) -> GroupState:
        """Its state."""

    @property
    def generation_id(self) -> int:
        """Its generation, 0 before the first."""

    @property
    def protocol_type(self) -> str | None:
        """Its protocol type (`consumer`, `connect`), None if it never had members."""

    @property
    def protocol_name(self) -> str | None:
        """The protocol of its generation, such as the assignor."""

    @property
    def members(self) -> MembersView:
        """Its members."""

    @property
    def committed(self) -> Mapping[TopicPartition, StoredOffset]:
        """Its committed offsets."""
