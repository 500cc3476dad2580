"""Which requests a fault rule applies to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from ottla.testing.errors import TestBrokerError
from ottla.testing.faults.named import NAMES, listed, nearest
from ottla.testing.faults.requests import GROUPS, WITH_TOPICS
from ottla.wire.apis import ApiKey

#: The longest delay or throttle time, in milliseconds: what the responses' field can hold.
LONGEST_MS: Final = 2**31 - 1


class Matching(TypedDict, total=False):
    """The keyword arguments of every rule.

    nth: the rule begins with the n-th matching request after its declaration; `times` is then 1 unless it is given.
    times: how many requests it applies to; by default all, until it is removed.
    topic, group, client_id: the request names this topic or group, or has this client id.
    when: a function that is called with the request's message in the broker's thread.
    """

    nth: int
    times: int | None
    topic: str
    group: str
    client_id: str
    when: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a rule for the requests that it applies to."""

    key: ApiKey
    nth: int = 1
    times: int | None = None
    topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    when: Callable[[Any], bool] | None = None

    def matches(
        self, topics: tuple[str, ...], groups: tuple[str, ...], client_id: str, request: Any, all_topics: bool = False
    ) -> bool:
        """Whether the request is one of those that are counted. Raises what `when` raises."""
        return (
            (self.topic is None or all_topics or self.topic in topics)
            and (self.group is None or self.group in groups)
            and (self.client_id is None or self.client_id == client_id)
            and (self.when is None or bool(self.when(request)))
        )

    def is_due(self, seen: int, fired: int) -> bool:
        """Whether the rule applies to the request that was counted last."""
        return seen >= self.nth and (self.times is None or fired < self.times)

    def __str__(self) -> str:
        limits = {"topic": self.topic, "group": self.group, "client_id": self.client_id, "times": self.times}
        said = [f"{name}={value!r}" for name, value in limits.items() if value is not None]
        if self.nth > 1:
            said.append(f"nth={self.nth}")
        if self.when is not None:
            said.append("when=…")
        return ", ".join(said)


def conditions(key: ApiKey, matching: Matching) -> Conditions:
    """The conditions of a rule. Raises `TestBrokerError` with cause and cure."""
    known = {name: f"{name}=" for name in Matching.__annotations__}
    for name in matching:
        if name not in known:
            raise TestBrokerError(f"a rule takes no {name}=; {nearest(name, known)}")
    for name in ("nth", "times"):
        value = matching.get(name, 1)
        if (type(value) is not int or value < 1) and (name, value) != ("times", None):
            raise TestBrokerError(f"{name}={value!r}: it counts requests from 1 on")
    for name in ("topic", "group", "client_id"):
        value = matching.get(name)
        if value is not None and not isinstance(value, str):
            raise TestBrokerError(f"{name}={value!r}: it must be text")
    api = NAMES[key]
    if matching.get("topic") is not None and key not in WITH_TOPICS:
        raise TestBrokerError(f"{api} names no topics: leave topic= out; it is for {_named(WITH_TOPICS)}")
    if matching.get("group") is not None and key not in GROUPS:
        raise TestBrokerError(f"{api} names no groups: leave group= out; it is for {_named(GROUPS)}")
    when = matching.get("when")
    if when is not None and not callable(when):
        raise TestBrokerError(f"when={when!r}: it must be a function of the request, as in lambda request: True")
    times = matching.get("times", 1 if "nth" in matching else None)
    topic, group, client_id = matching.get("topic"), matching.get("group"), matching.get("client_id")
    return Conditions(key, matching.get("nth", 1), times, topic, group, client_id, when)


def _named(keys: Any) -> str:
    return listed(NAMES[key] for key in keys)


def milliseconds(ms: float) -> int:
    """A duration. Raises `TestBrokerError`."""
    if type(ms) not in (int, float) or not 0 <= ms <= LONGEST_MS:
        raise TestBrokerError(f"ms={ms!r}: it is a number of milliseconds from 0 to {LONGEST_MS}")
    return int(ms)


def byte_count(after_bytes: int) -> int:
    """A number of bytes. Raises `TestBrokerError`."""
    if type(after_bytes) is not int or after_bytes < 0:
        raise TestBrokerError(f"after_bytes={after_bytes!r}: it is a number of bytes from 0 on")
    return after_bytes
