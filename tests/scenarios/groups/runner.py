"""Runs transcripts: `> command` lines, each followed by what it led to. See the files beside this one.

A client is a letter or word; it remembers its member id and generation from the answers it gets and uses them in its
next request, unless the command says otherwise. Commands:

    limits delay=0 size=2 min=6s max=30m metadata=4096     (first, if at all)
    join A [v3] [range:t1,t2 sticky:t1+t1:0,1] [session=10s] [rebalance=60s] [instance=x] [id=..] [type=..] [reason=..]
    sync A [A=t1:0,1 B=t1:2] [gen=..] [id=..] [instance=..] [protocol=..]
    heartbeat A [gen=..] [id=..] [instance=..]
    leave A [B ..] [id=..] [instance=..]
    commit A t1:0=5 [gen=..] [id=..] [retention=..] [metadata=..]
    fetch t1:0 [t1:1 ..] [stable]
    describe | delete | expire retention=7d | topic t1 3->4
    fail ERROR_CODE      (the next append)
    advance 3000ms | restart
    isolate              (nothing is copied to other brokers from now on)
    copy                 (they copy all there is, without the leader's knowledge)
    takeover             (the leader is killed; another continues with what it has copied)
    resign               (the leader hears that it is not the leader any more)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.assign.consumer_protocol import Assignment, decode_assignment, encode_assignment
from ottla.groups.classic.group import GroupLimits
from ottla.groups.events import (
    CommitResult,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    ExpireMember,
    ExpireOffsets,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    OffsetCommit,
    PartitionsChanged,
    Reply,
    RequestRebalance,
    SyncGroup,
    SyncResult,
    TopicsDeleted,
)
from ottla.groups.evidence import Evidence
from ottla.groups.records import NO_EXPIRY, LogRecord, OffsetRecord, StoredOffset
from ottla.wire.errors import ErrorCode
from scenarios.groups.world import GROUP, World
from support.transcripts import milliseconds, partitions_of, protocols_of, words_of

DEFAULT_PROTOCOL = "range:t1"


@dataclass
class Client:
    """What a client remembers."""

    name: str
    member_id: str = ""
    generation: int = -1
    instance: str | None = None
    protocols: list[str] = field(default_factory=lambda: [DEFAULT_PROTOCOL])
    session: str = "10s"
    rebalance: str = "60s"
    version: int = 9
    protocol_type: str = "consumer"
    requests: int = 0


class Transcript:
    """A world driven by commands, telling in text what happened."""

    def __init__(self) -> None:
        self.world = World()
        self.clients: dict[str, Client] = {}
        self.ids = 0
        self._last_story: Iterable[tuple[int, str]] = []

    def run(self, command: str) -> list[str]:
        """One command; what it led to, line by line."""
        name, *rest = shlex.split(command)
        before = len(self._story())
        machine = self.world.machine
        act: Callable[[list[str]], list[str]] = getattr(self, f"do_{name}")
        lines = act(rest)
        outcome = self.world.take()
        if self.world.machine is not machine and machine is not None and self.world.machine is not None:
            before = 0
        transitions = [text for _, text in self._story()[before:] if "->" in text or text.startswith("loaded")]
        lines += [f"state: {text}" for text in transitions]
        lines += [f"log: {_record(record)}" for record in outcome.records]
        lines += [line for reply in outcome.replies for line in self._reply(reply)]
        lines += [f"evidence: {_evidence(evidence)}" for evidence in outcome.evidence]
        return lines or ["(nothing)"]

    def _story(self) -> list[tuple[int, str]]:
        machine = self.world.machine
        if machine is not None:
            self._last_story = machine._story
        return list(self._last_story)

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def token(self, client: Client, request: str) -> tuple[str, str, int]:
        client.requests += 1
        return (client.name, request, client.requests)

    def do_limits(self, rest: list[str]) -> list[str]:
        options = words_of(rest).options
        self._last_story = []
        self.world = World(
            GroupLimits(
                initial_rebalance_delay_ms=milliseconds(options.get("delay", "0")),
                max_size=int(options.get("size", 2**31 - 1)),
                min_session_timeout_ms=milliseconds(options.get("min", "6s")),
                max_session_timeout_ms=milliseconds(options.get("max", "30m")),
                offset_metadata_max_bytes=int(options.get("metadata", 4096)),
            )
        )
        return []

    def do_join(self, rest: list[str]) -> list[str]:
        words = words_of(rest)
        client = self.client(words.plain.pop(0))
        for word in list(words.plain):
            if re.fullmatch(r"v\d", word):
                client.version = int(word[1:])
                words.plain.remove(word)
        client.protocols = words.plain or client.protocols
        client.session = words.options.get("session", client.session)
        client.rebalance = words.options.get("rebalance", client.rebalance)
        client.instance = words.options.get("instance", client.instance)
        client.protocol_type = words.options.get("type", client.protocol_type)
        self.ids += 1
        version = client.version
        session_ms = milliseconds(client.session)
        self.world.submit(
            JoinGroup(
                self.token(client, "join"),
                GROUP,
                words.options.get("id", client.member_id),
                client.instance,
                client.name,
                f"/host-{client.name}",
                session_ms,
                milliseconds(client.rebalance) if version >= 1 else session_ms,
                client.protocol_type,
                protocols_of(client.protocols),
                str(self.ids),
                words.options.get("reason"),
                version >= 4,
                version >= 9,
            )
        )
        return []

    def do_sync(self, rest: list[str]) -> list[str]:
        words = words_of(rest)
        client = self.client(words.plain.pop(0))
        options = words.options
        assignments = {}
        for name, member in self.clients.items():
            if name in options:
                assignments[member.member_id] = _assignment(options[name])
        protocol = options.get("protocol")
        self.world.submit(
            SyncGroup(
                self.token(client, "sync"),
                GROUP,
                int(options.get("gen", client.generation)),
                options.get("id", client.member_id),
                options.get("instance", client.instance),
                None if protocol is None else client.protocol_type,
                protocol,
                assignments,
            )
        )
        return []

    def do_heartbeat(self, rest: list[str]) -> list[str]:
        words = words_of(rest)
        client = self.client(words.plain.pop(0))
        self.world.submit(
            Heartbeat(
                self.token(client, "heartbeat"),
                GROUP,
                int(words.options.get("gen", client.generation)),
                words.options.get("id", client.member_id),
                words.options.get("instance", client.instance),
            )
        )
        return []

    def do_leave(self, rest: list[str]) -> list[str]:
        words = words_of(rest)
        clients = [self.client(name) for name in words.plain]
        members = [
            LeavingMember(words.options.get("id", c.member_id), words.options.get("instance", c.instance))
            for c in clients
        ]
        self.world.submit(LeaveGroup(self.token(clients[0], "leave"), GROUP, members))
        return []

    def do_commit(self, rest: list[str]) -> list[str]:
        words = words_of(rest)
        client = self.client(words.plain.pop(0))
        options = words.options
        gen = int(options.pop("gen", client.generation))
        member_id = options.pop("id", client.member_id)
        instance = options.pop("instance", client.instance)
        retention = options.pop("retention", None)
        metadata = options.pop("metadata", "")
        now_ms = self.world.now_ms
        expires = NO_EXPIRY if retention is None else now_ms + milliseconds(retention)
        offsets = []
        for where, offset in options.items():
            topic, index = where.split(":")
            offsets.append((topic, int(index), StoredOffset(int(offset), -1, metadata, now_ms, expires)))
        self.world.submit(OffsetCommit(self.token(client, "commit"), GROUP, gen, member_id, instance, offsets))
        return []

    def do_fetch(self, rest: list[str]) -> list[str]:
        machine = self.world.machine
        lines = []
        for where in rest:
            topic, index = where.split(":")
            found = None if machine is None else machine.committed.get((topic, int(index)))
            lines.append(f"{where} at {'nothing' if found is None else found.offset}")
        return lines

    def do_describe(self, rest: list[str]) -> list[str]:
        machine = self.world.machine
        if machine is None:
            return ["Dead"]
        members = []
        for member in machine.members:
            owned = _show_assignment(member.assignment)
            instance = "" if member.group_instance_id is None else f" instance={member.group_instance_id}"
            members.append(f"  {member.member_id}{instance} owns {owned or 'nothing'}")
        leader = machine.members.leader or "nobody"
        head = (
            f"{machine.state.value} generation={machine.generation_id} protocol={machine.protocol_name} leader={leader}"
        )
        return [head, *members]

    def do_delete(self, rest: list[str]) -> list[str]:
        self.world.submit(DeleteGroup(self.token(self.client("admin"), "delete"), GROUP))
        return []

    def do_delete_offsets(self, rest: list[str]) -> list[str]:
        keys = [(topic, int(index)) for topic, _, index in (one.partition(":") for one in rest)]
        self.world.submit(DeleteOffsets(self.token(self.client("admin"), "delete-offsets"), GROUP, keys))
        return []

    def do_expire(self, rest: list[str]) -> list[str]:
        self.world.submit(ExpireOffsets(GROUP, milliseconds(words_of(rest).options["retention"])))
        return []

    def do_topic(self, rest: list[str]) -> list[str]:
        before, now = (int(n) for n in rest[1].split("->"))
        self.world.submit(PartitionsChanged(GROUP, {rest[0]: (before, now)}))
        if now == 0:
            self.world.submit(TopicsDeleted(GROUP, frozenset({rest[0]})))
        return []

    def do_rebalance(self, rest: list[str]) -> list[str]:
        self.world.submit(RequestRebalance(GROUP, " ".join(rest) or None))
        return []

    def do_expire_member(self, rest: list[str]) -> list[str]:
        self.world.submit(ExpireMember(GROUP, self.client(rest[0]).member_id))
        return []

    def do_fail(self, rest: list[str]) -> list[str]:
        self.world.next_error = ErrorCode[rest[0]]
        return []

    def do_advance(self, rest: list[str]) -> list[str]:
        self.world.advance(milliseconds(rest[0]))
        return []

    def do_restart(self, rest: list[str]) -> list[str]:
        self.world.restart()
        return []

    def do_isolate(self, rest: list[str]) -> list[str]:
        self.world.is_followed = False
        return []

    def do_copy(self, rest: list[str]) -> list[str]:
        self.world.copied = len(self.world.log)
        return []

    def do_takeover(self, rest: list[str]) -> list[str]:
        self.world.take_over()
        return []

    def do_resign(self, rest: list[str]) -> list[str]:
        self.world.resign()
        return []

    def _reply(self, reply: Reply) -> list[str]:
        name, request, _ = reply.token  # type: ignore[misc]
        client = self.clients[name]
        result = reply.result
        if isinstance(result, JoinResult):
            client.member_id = result.member_id or client.member_id
            if result.error is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = ""
            if result.error is not ErrorCode.NONE:
                return [f"{name} <- join {result.error.name} id={result.member_id or '-'}"]
            client.generation = result.generation_id
            members = ",".join(member.member_id for member in result.members)
            skip = " skip-assignment" if result.skip_assignment else ""
            return [
                f"{name} <- join generation={result.generation_id} protocol={result.protocol_name} "
                f"id={result.member_id} leader={result.leader} members=[{members}]{skip}"
            ]
        if isinstance(result, SyncResult):
            shown = result.error.name if result.error else f"owns {_show_assignment(result.assignment) or 'nothing'}"
            return [f"{name} <- sync {shown}"]
        if isinstance(result, LeaveResult):
            if result.error:
                return [f"{name} <- leave {result.error.name}"]
            errors = [f"{m.member_id or m.group_instance_id} {error.name}" for m, error in result.members]
            return [f"{name} <- leave {', '.join(errors)}"]
        if isinstance(result, CommitResult):
            return [f"{name} <- commit {' '.join(error.name for error in result.errors)}"]
        if isinstance(result, DeleteOffsetsResult):
            told = " ".join(error.name for error in result.errors) or result.error.name
            return [f"{name} <- {request} {told}"]
        assert isinstance(result, ErrorResult)
        return [f"{name} <- {request} {result.error.name}"]


def rerun(text: str) -> str:
    """The transcript with its outcomes as they are now; comments and blank lines stay."""
    transcript = Transcript()
    lines = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines.append(line)
            lines += [f"  {shown}" for shown in transcript.run(line[2:].split(" #")[0])]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


def _assignment(text: str) -> bytes:
    return encode_assignment(partitions_of(text))


def _show_assignment(data: bytes) -> str:
    read = decode_assignment(data)
    assert isinstance(read, Assignment)
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in read.partitions.items())


def _record(record: LogRecord) -> str:
    if isinstance(record, OffsetRecord):
        shown = "tombstone" if record.value is None else f"offset {record.value.offset}"
        return f"{record.topic}:{record.partition} {shown}"
    value = record.value
    if value is None:
        return "group tombstone"
    members = ",".join(member.member_id for member in value.members)
    return f"generation {value.generation} protocol={value.protocol} leader={value.leader} members=[{members}]"


def _evidence(evidence: Evidence) -> str:
    value = evidence.value
    causes = ", ".join(f"{cause['cause']} {cause['member_id']}".strip() for cause in value["causes"])
    moved = " ".join(f"{m['topic']}:{m['partition']} {m['from']}>{m['to']}" for m in value["moved"])
    pauses = " ".join(f"{m['member_id']}={m['pause_ms']}" for m in value["members"])
    return (
        f"generation {value['generation']} {value['outcome']} in {value['duration_ms']} ms; "
        f"causes: {causes or 'none'}; moved: {moved or 'nothing'}; pauses: {pauses or 'none'}"
    )
