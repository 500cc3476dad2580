"""The waits of a test, as coroutines of the broker's own loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groups.states import GroupState
from ottla.testing.errors import TestBrokerError
from ottla.testing.faults.named import nearest
from ottla.testing.groups import SeenGroup, see_group
from ottla.testing.reading import Found, count_records, read_records
from ottla.testing.waiting import until

if TYPE_CHECKING:
    from ottla.broker.server import Broker


async def records(broker: Broker, topic: str, count: int, timeout_s: float) -> list[Found]:
    """All records of the topic once there are at least `count`."""

    def look() -> list[Found] | None:
        return read_records(broker, topic) if count_records(broker, topic) >= count else None

    def what() -> str:
        return f"{count} records in {topic}: {count_records(broker, topic)} are there"

    return await until(look, what, timeout_s)


async def group(broker: Broker, group_id: str, members: int | None, state: str, timeout_s: float) -> SeenGroup:
    """The group once in this state, with `members` members (None: any number). `TestBrokerError`: unknown state."""
    states = {each.value.lower(): each.value for each in GroupState}
    if state not in states.values():
        raise TestBrokerError(f"a group has no state {state}; {nearest(state.lower(), states)}")

    def look() -> SeenGroup | None:
        seen = see_group(broker, group_id)
        if seen is None or seen.state != state:
            return None
        return seen if members is None or len(seen.members) == members else None

    def what() -> str:
        wanted = f"the group {group_id} in state {state}" + ("" if members is None else f" with {members} members")
        seen = see_group(broker, group_id)
        if seen is None:
            return f"{wanted}: there is no such group"
        return f"{wanted}: it is {seen.state} with {len(seen.members)} members"

    return await until(look, what, timeout_s)


async def commit(broker: Broker, group_id: str, topic: str, partition: int, offset: int, timeout_s: float) -> int:
    """The group's committed offset of the partition once it is at least `offset`."""

    def committed() -> int | None:
        seen = see_group(broker, group_id)
        return None if seen is None else seen.committed.get((topic, partition))

    def look() -> int | None:
        found = committed()
        return found if found is not None and found >= offset else None

    def what() -> str:
        return f"group {group_id} to commit {offset} for {topic}-{partition}: it has committed {committed()}"

    return await until(look, what, timeout_s)
