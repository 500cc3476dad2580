"""Answers and groups as lines of a transcript: everything in them but what says nothing about behaviour."""

from __future__ import annotations

import re
from collections import Counter

from interop.wire_json import Json
from ottla.assign.consumer_protocol import Malformed, decode_subscription
from ottla.wire.errors import ErrorCode

_RANDOM_PART = re.compile(r"-[0-9a-zA-Z_-]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class Names:
    """Names for member ids: what they begin with, numbered from the second on, in the order of their appearance."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def of(self, member_id: str) -> str:
        """The name of an id; ids that no broker made are their own."""
        if member_id not in self._names:
            prefix = _RANDOM_PART.sub("", member_id)
            if prefix == member_id:
                return member_id or "-"
            self._counts[prefix] += 1
            number = self._counts[prefix]
            self._names[member_id] = prefix if number == 1 else f"{prefix}.{number}"
        return self._names[member_id]

    def ids(self) -> list[str]:
        """The ids that have appeared."""
        return list(self._names)

    def id_of(self, name: str | None, default: str) -> str:
        """The id with a name; a name that no id has stands for itself."""
        if name is None:
            return default
        return next((member_id for member_id, known in self._names.items() if known == name), name)


def show_answer(what: str, answer: Json, names: Names) -> str:
    """An answer without what is empty in it."""
    shown = [ErrorCode(answer["error_code"]).name] if "error_code" in answer else []
    if what in ("commit", "forget"):
        # Apache Kafka lists them in the order of a hash table.
        shown += sorted(
            f"{topic['name']}:{partition['partition_index']} {ErrorCode(partition['error_code']).name}"
            for topic in answer["topics"]
            for partition in topic["partitions"]
        )
    elif what == "join":
        shown += _show_join(answer, names)
    elif what == "sync" and not answer["error_code"]:
        shown.append(f"owns {answer['assignment'].decode() or 'nothing'}")
        shown += _show_protocol(answer)
    elif what == "leave":
        for member in answer.get("members") or ():
            name = names.of(member["member_id"]) + _at(member)
            shown.append(f"{name} {ErrorCode(member['error_code']).name}")
    return " ".join(shown)


def _show_join(answer: Json, names: Names) -> list[str]:
    shown = [f"as {names.of(answer['member_id'])}"]
    if answer["generation_id"] != -1:
        shown.append(f"generation {answer['generation_id']}")
    shown += _show_protocol(answer)
    if answer["leader"]:
        shown.append(f"leader {names.of(answer['leader'])}")
    # Apache Kafka lists them in the order of a hash table.
    members = sorted(names.of(m["member_id"]) + _at(m) + _show_metadata(m["metadata"]) for m in answer["members"])
    if members:
        shown.append(f"members {' '.join(members)}")
    if answer.get("skip_assignment"):
        shown.append("skip assignment")
    return shown


def _show_protocol(answer: Json) -> list[str]:
    kind, name = answer.get("protocol_type") or "", answer.get("protocol_name") or ""
    return [f"{kind}/{name}"] if kind or name else []


def _show_metadata(metadata: bytes) -> str:
    read = decode_subscription(metadata)
    return f"(0x{metadata.hex()})" if isinstance(read, Malformed) else f"({','.join(read.topics)})"


def _at(member: Json) -> str:
    instance = member.get("group_instance_id")
    return "" if instance is None else f"@{instance}"


def show_group(described: Json, names: Names) -> str:
    """`[Stable consumer/range a=x b=y]`: state, protocol, members with their assignments."""
    shown = [described["group_state"]]
    if described["error_code"]:
        shown.append(ErrorCode(described["error_code"]).name)
    kind, protocol = described["protocol_type"], described["protocol_data"]
    if protocol:
        shown.append(f"{kind}/{protocol}")
    elif kind:
        shown.append(kind)
    members = described["members"]
    for member in sorted(members, key=lambda one: (names.of(one["member_id"]), one["client_id"])):
        text = names.of(member["member_id"]) + _at(member)
        if member["member_metadata"]:
            text += _show_metadata(member["member_metadata"])
        if member["member_assignment"]:
            text += f"={member['member_assignment'].decode()}"
        shown.append(text)
    return f"[{' '.join(shown)}]"
