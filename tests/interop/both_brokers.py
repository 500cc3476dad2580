"""The same question to two brokers, whose answers must be the same but for what cannot be (ids, ports, times)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from interop.raw import RawConnection
from interop.wire_json import Json
from support.waiting import wait_until

#: Fields that belong to one broker's life and say nothing about its behaviour.
OWN_FIELDS = {"host", "port", "cluster_id", "throttle_time_ms"}
#: Fields of which only the sign is comparable.
SIGN_ONLY = {"producer_id", "session_id", "log_append_time_ms"}
#: The random part of member ids.
RANDOM_PART = re.compile(r"(?<=-)[0-9a-zA-Z_-]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INVALID_REPLICATION_FACTOR = 38
ABSENT = "(absent)"
NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True)
class Each:
    """A value that differs between the two: ours and theirs."""

    ours: Any
    theirs: Any


class BrokerPair:
    """Two raw connections, asked in step."""

    def __init__(self, ours: RawConnection, theirs: RawConnection) -> None:
        self.ours = ours
        self.theirs = theirs

    def check_alike(
        self, api: str, version: int, *, ignore: frozenset[str] | set[str] = frozenset(), **body: Any
    ) -> Json:
        """Ask both, check that the answers are equal, and give ours; fields named in `ignore` are not compared."""
        ours = self.ours.request(api, version, **_side(body, "ours"))
        theirs = self.theirs.request(api, version, **_side(body, "theirs"))
        assert_alike(ours, theirs, f"{api} v{version}", ignore)
        return ours

    def ask_each(self, api: str, version: int, **body: Any) -> Each:
        """Ask both and give both answers uncompared."""
        return Each(
            self.ours.request(api, version, **_side(body, "ours")),
            self.theirs.request(api, version, **_side(body, "theirs")),
        )

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> Each:
        """Make a topic on both, wait until it is usable, and give its ids."""
        entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": entries}
        for one in (self.ours, self.theirs):
            wait_until(partial(made, one, topic), f"topic {name}")
        return Each(*(topic_id_when_usable(one, name, partitions) for one in (self.ours, self.theirs)))


def made(connection: RawConnection, topic: Json) -> bool:
    """Make a topic; False where the controller has not heard of its only broker yet."""
    (answer,) = connection.request("CreateTopics", 7, topics=[topic], timeout_ms=20_000)["topics"]
    assert answer["error_code"] in (0, INVALID_REPLICATION_FACTOR), answer
    return bool(answer["error_code"] == 0)


def topic_id_when_usable(connection: RawConnection, name: str, partitions: int = 1) -> uuid.UUID:
    """The id of a topic once all its partitions have leaders that answer."""

    def usable() -> uuid.UUID | None:
        (topic,) = connection.request("Metadata", 12, topics=[{"name": name}])["topics"]
        if topic["error_code"] or len(topic["partitions"]) < partitions:
            return None
        asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        answer = connection.request("ListOffsets", 7, replica_id=-1, topics=[{"name": name, "partitions": asked}])
        errors = [one["error_code"] for one in answer["topics"][0]["partitions"]]
        return None if any(errors) else topic["topic_id"]

    return wait_until(usable, f"topic {name}")


def coordinator_is_up(connection: RawConnection, group: str) -> bool:
    """Whether a group's coordinator is there and has loaded it; asking makes the offsets topic."""
    found = connection.request("FindCoordinator", 1, key=group, key_type=0)
    if found["error_code"]:
        return False
    return bool(connection.request("DescribeGroups", 0, groups=[group])["groups"][0]["error_code"] == 0)


def scrubbed(value: Any, ignore: frozenset[str] | set[str] = frozenset()) -> Any:
    """An answer without what differs between any two brokers."""
    if isinstance(value, dict):
        return {
            name: _sign(part) if name in SIGN_ONLY else scrubbed(part, ignore)
            for name, part in value.items()
            if name not in OWN_FIELDS and name not in ignore
        }
    if isinstance(value, list):
        return [scrubbed(part, ignore) for part in value]
    if isinstance(value, uuid.UUID):
        return "no id" if value == NO_ID else "an id"
    return RANDOM_PART.sub("…", value) if isinstance(value, str) else value


def assert_alike(ours: Any, theirs: Any, what: str, ignore: frozenset[str] | set[str] = frozenset()) -> None:
    """Fail with the paths of all differences between two answers."""
    found = list(differences(scrubbed(ours, ignore), scrubbed(theirs, ignore)))
    if found:
        raise AssertionError("\n".join([f"{what} differs:", *found]))


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Every place where two answers differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            yield from differences(ours.get(name, ABSENT), theirs.get(name, ABSENT), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(left, right, f"{path}[{number}]")
    elif ours != theirs:
        yield f"  {path.removeprefix('.')}: ours {ours!r}, Apache Kafka's {theirs!r}"


def _sign(value: int) -> str:
    return "negative" if value < 0 else "positive" if value else "zero"


def _side(value: Any, side: str) -> Any:
    if isinstance(value, Each):
        return getattr(value, side)
    if isinstance(value, dict):
        return {name: _side(part, side) for name, part in value.items()}
    if isinstance(value, list):
        return [_side(part, side) for part in value]
    return value
