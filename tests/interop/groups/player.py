"""Plays the commands of a transcript to one broker: several members, each with a connection of its own.

A client is a word; it remembers its member id and generation from the answers it gets, and uses them in its next
request unless the command says otherwise. Ids are shown as the name they begin with: `b` is the first member id of the
client b, `b.2` the second. A static member's ids begin with its instance. Commands:

    stable A B ..           a stable group of these members with the assignments A=A0 B=B0 .., one join at a time
    joined A B ..           the same, with nobody's SyncGroup sent
    join A [v3] [range:t1,t2 ..] [session=10s] [rebalance=60s] [instance=x] [id=..] [type=..] [group=..]
    sync A [v5] [A=x B=y] [gen=..] [id=..] [instance=..] [protocol=..] [type=..] [group=..]
    heartbeat A [gen=..] [id=..] [instance=..] [group=..]
    leave A [v5] [B ..] [id=..] [instance=..] [group=..]
    commit A [v8] t:0=5 [gen=..] [id=..] [instance=..] [group=..]
    fetch t:0 [t:1 ..]      what is committed
    forget t:0 [t:1 ..]     OffsetDelete
    delete                  DeleteGroups
    list                    the group as ListGroups has it
    close A                 drops the connection of A, and with it the answers it waits for
    wait 2s                 for what becomes of the group in this time

A client whose request waits for an answer sends its next one on another connection.

What a step leads to is known without sleeping. Both brokers handle requests one after the other (Apache Kafka is given
one network thread and one request handler), so that after a few more answers on another connection whatever was sent
before has been handled, and what has no answer by then is parked. Answers that are expected are waited for.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from interop.both_brokers import coordinator_is_up
from interop.groups.shown import Names, show_answer, show_group
from interop.groups.transcript import Scenario, Step
from interop.raw import RawConnection
from interop.wire_json import Definitions, Json
from ottla.wire.errors import ErrorCode
from support.transcripts import Words, milliseconds, protocols_of, words_of
from support.waiting import wait_until

#: The topics that are there.
TOPICS = ("t", "u")
#: One answer may overtake a request that was sent before; the second cannot overtake its handling, nor the third its
#: answer.
PROBES = 3
#: How long an expected answer may take on a busy machine.
PATIENCE_S = 60.0
#: When nothing is expected (a transcript is recorded): how long nothing must happen.
QUIET_S = 0.15
#: Between two looks at what has come; longer where a deadline of seconds is waited for.
PAUSE_S = 0.005
WAITING_PAUSE_S = 0.05
#: How many scenarios are played at once.
PLAYERS = 24
DEFAULT_VERSIONS = {"join": 9, "sync": 5, "heartbeat": 4, "leave": 5, "commit": 8}
APIS = {
    "join": "JoinGroup",
    "sync": "SyncGroup",
    "heartbeat": "Heartbeat",
    "leave": "LeaveGroup",
    "commit": "OffsetCommit",
}
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_WITH_MANY = 3

#: What steps led to, by the lines of their commands.
Outcomes = dict[int, list[str]]


@dataclass
class Client:
    """What a client remembers."""

    name: str
    connection: RawConnection | None = None
    member_id: str = ""
    generation: int = -1
    instance: str | None = None
    protocols: list[str] = field(default_factory=lambda: ["range:t"])
    protocol_name: str = "range"
    protocol_type: str = "consumer"
    session: str = "30s"
    rebalance: str = "60s"
    join_version: int = DEFAULT_VERSIONS["join"]


@dataclass
class Waiting:
    """A request that has no answer yet."""

    client: Client
    what: str
    version: int
    connection: RawConnection


class Player:
    """One broker's side of a scenario; `connect` makes connections to it, which the caller closes."""

    def __init__(
        self, connect: Callable[[], RawConnection], group: str, show: Callable[[Json, Names], str] = show_group
    ) -> None:
        self.connect = connect
        self.group = group
        self.show = show
        self.observer = connect()
        self.clients: dict[str, Client] = {}
        self.waiting: list[Waiting] = []
        self.names = Names()
        #: The leader's member id, as the latest JoinGroup that was answered has it.
        self.leader = ""
        wait_until(lambda: coordinator_is_up(self.observer, group), f"the coordinator of {group}")

    def play(self, step: Step, side: str | None) -> list[str]:
        """Carry out a step; the lines it leads to. Those that the file expects of `side` are waited for.

        Without a side (a transcript is recorded) whatever comes is taken.
        """
        name, *rest = step.command.split()
        limit_s = milliseconds(rest[0]) / 1000 if name == "wait" else 0.0
        lines = self.begin(step.command)
        if side is None:
            return self._settled(lines, limit_s)
        pause_s = WAITING_PAUSE_S if limit_s else PAUSE_S
        expected = sorted(step.expected(side))
        deadline = time.monotonic() + limit_s + PATIENCE_S
        while True:
            answers, state = self.look()
            lines += answers
            if sorted([*lines, state]) == expected or time.monotonic() >= deadline:
                return [*sorted(lines), state]
            time.sleep(pause_s)  # sleep: until the next look

    def begin(self, command: str) -> list[str]:
        """Send what a command says; the lines that are known at once."""
        name, *rest = shlex.split(command)
        act: Callable[[Words], list[str]] = getattr(self, f"do_{name}")
        return act(words_of(rest))

    def look(self) -> tuple[list[str], str]:
        """The answers that have come since, and the state of the group, once everything that was sent is handled."""
        state = self._state_when_handled()
        return self._answers(), state

    def _settled(self, lines: list[str], limit_s: float) -> list[str]:
        """What has happened once nothing more does; something must within the limit, if there is one."""
        state = self._state_when_handled()
        quiet_until = time.monotonic() + max(limit_s, QUIET_S)
        while time.monotonic() < quiet_until:
            answers, now = self.look()
            if answers or now != state:
                quiet_until = time.monotonic() + QUIET_S
            lines += answers
            state = now
            time.sleep(PAUSE_S)  # sleep: until the next look
        return [*sorted(lines), state]

    def describe(self) -> Json:
        described: Json = self.observer.request("DescribeGroups", 5, groups=[self.group])["groups"][0]
        return described

    def _state_when_handled(self) -> str:
        for _ in range(PROBES):
            described = self.describe()
        return self.show(described, self.names)

    def _answers(self) -> list[str]:
        """The answers that have come, as lines; their clients remember what they need."""
        lines = []
        for waiting in [one for one in self.waiting if one.connection.has_answer()]:
            self.waiting.remove(waiting)
            answer = waiting.connection.receive(APIS[waiting.what], waiting.version)
            client = waiting.client
            if waiting.what == "join":
                self._remember(client, answer)
            lines.append(f"{client.name} <- {waiting.what} {show_answer(waiting.what, answer, self.names)}")
        return lines

    def _remember(self, client: Client, answer: Json) -> None:
        error = answer["error_code"]
        if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = answer["member_id"]
        elif error == ErrorCode.UNKNOWN_MEMBER_ID and answer["member_id"] in ("", client.member_id):
            client.member_id = ""
        if not error:
            client.generation = answer["generation_id"]
            self.leader = answer["leader"]
            client.protocol_name = answer["protocol_name"]

    def _send(self, client: Client, what: str, version: int, body: Json) -> None:
        busy = {id(waiting.connection) for waiting in self.waiting}
        if client.connection is None or id(client.connection) in busy:
            client.connection = self.connect()
        connection = client.connection
        connection.socket.sendall(connection.encode(APIS[what], version, body, client_id=client.name))
        self.waiting.append(Waiting(client, what, version, connection))

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def _identity(self, client: Client, words: Words) -> Json:
        """Group, member id and instance, as the client or the command has them."""
        options = words.options
        body: Json = {"group_id": options.pop("group", self.group)}
        body["member_id"] = self.names.id_of(options.pop("id", None), client.member_id)
        instance = options.pop("instance", client.instance)
        return body | {"group_instance_id": instance} if instance else body

    def do_join(self, words: Words) -> list[str]:
        client = self._client(words.plain.pop(0))
        client.join_version = _version(words, client.join_version)
        options = words.options
        client.protocols = words.plain or client.protocols
        client.session = options.get("session", client.session)
        client.rebalance = options.get("rebalance", client.rebalance)
        client.instance = options.get("instance", client.instance)
        client.protocol_type = options.get("type", client.protocol_type)
        body = self._identity(client, words) | {
            "session_timeout_ms": milliseconds(client.session),
            "protocol_type": client.protocol_type,
            "protocols": [{"name": name, "metadata": data} for name, data in protocols_of(client.protocols)],
        }
        if client.join_version >= 1:
            body["rebalance_timeout_ms"] = milliseconds(client.rebalance)
        self._send(client, "join", client.join_version, body)
        return []

    def do_sync(self, words: Words) -> list[str]:
        client = self._client(words.plain.pop(0))
        version = _version(words, DEFAULT_VERSIONS["sync"])
        options = words.options
        body = self._identity(client, words)
        body["generation_id"] = int(options.pop("gen", client.generation))
        protocol = options.pop("protocol", client.protocol_name)
        protocol_type = options.pop("type", client.protocol_type)
        if version >= FIRST_SYNC_WITH_PROTOCOL:
            body |= {"protocol_type": protocol_type, "protocol_name": protocol}
        body["assignments"] = [
            {"member_id": self._member_id_of(name), "assignment": value.encode()} for name, value in options.items()
        ]
        self._send(client, "sync", version, body)
        return []

    def _member_id_of(self, name: str) -> str:
        return self.clients[name].member_id if name in self.clients else self.names.id_of(name, name)

    def do_heartbeat(self, words: Words) -> list[str]:
        client = self._client(words.plain.pop(0))
        version = _version(words, DEFAULT_VERSIONS["heartbeat"])
        body = self._identity(client, words)
        body["generation_id"] = int(words.options.get("gen", client.generation))
        self._send(client, "heartbeat", version, body)
        return []

    def do_leave(self, words: Words) -> list[str]:
        client = self._client(words.plain[0])
        version = _version(words, DEFAULT_VERSIONS["leave"])
        if version < FIRST_LEAVE_WITH_MANY:
            body = self._identity(client, words)
        else:
            members = [self._identity(self._client(name), Words([], dict(words.options))) for name in words.plain]
            body = {"group_id": members[0]["group_id"]}
            body["members"] = [{k: v for k, v in one.items() if k != "group_id"} for one in members]
        self._send(client, "leave", version, body)
        return []

    def do_commit(self, words: Words) -> list[str]:
        client = self._client(words.plain.pop(0))
        version = _version(words, DEFAULT_VERSIONS["commit"])
        body = self._identity(client, words)
        body["generation_id_or_member_epoch"] = int(words.options.pop("gen", client.generation))
        topics: dict[str, list[Json]] = {}
        for where, offset in words.options.items():
            topic, _, index = where.partition(":")
            committed = {"partition_index": int(index), "committed_offset": int(offset), "committed_metadata": ""}
            topics.setdefault(topic, []).append(committed)
        body["topics"] = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        self._send(client, "commit", version, body)
        return []

    def do_fetch(self, words: Words) -> list[str]:
        lines = []
        for where in words.plain:
            topic, _, index = where.partition(":")
            wanted = [{"name": topic, "partition_indexes": [int(index)]}]
            answer = self.observer.request("OffsetFetch", 7, group_id=self.group, topics=wanted)
            (partition,) = answer["topics"][0]["partitions"]
            lines.append(f"{where} at {partition['committed_offset']}")
        return lines

    def do_forget(self, words: Words) -> list[str]:
        topics: dict[str, list[Json]] = {}
        for where in words.plain:
            topic, _, index = where.partition(":")
            topics.setdefault(topic, []).append({"partition_index": int(index)})
        wanted = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        answer = self.observer.request("OffsetDelete", 0, group_id=self.group, topics=wanted)
        return [f"forget {show_answer('forget', answer, self.names)}"]

    def do_list(self, words: Words) -> list[str]:
        answer = self.observer.request("ListGroups", 5, states_filter=[], types_filter=[])
        found = [one for one in answer["groups"] if one["group_id"] == self.group]
        return [f"listed {one['group_state']} {one['group_type']} {one['protocol_type'] or '-'}" for one in found]

    def do_delete(self, words: Words) -> list[str]:
        (result,) = self.observer.request("DeleteGroups", 2, groups_names=[self.group])["results"]
        return [f"delete {ErrorCode(result['error_code']).name}"]

    def do_close(self, words: Words) -> list[str]:
        for name in words.plain:
            client = self._client(name)
            for waiting in [one for one in self.waiting if one.client is client]:
                waiting.connection.close()
                self.waiting.remove(waiting)
            if client.connection is not None:
                client.connection.close()
            client.connection = None
        return []

    def do_wait(self, words: Words) -> list[str]:
        return []

    def do_stable(self, words: Words) -> list[str]:
        self.do_joined(words)
        members = [self._client(name) for name in words.plain]
        for member in members:
            given = {one.name: f"{one.name}0" for one in members} if member is members[0] else {}
            self.do_sync(Words([member.name], given))
            self._until_answered(member)
        return []

    def do_joined(self, words: Words) -> list[str]:
        names = [word for word in words.plain if ":" not in word and not _is_version(word)]
        more = [word for word in words.plain if word not in names]
        words.plain = names
        for number, name in enumerate(names):
            client = self._client(name)
            join = Words([name, *more], dict(words.options))
            self.do_join(join)
            if client.join_version >= 4 and client.instance is None:
                self._until_answered(client)
                self.do_join(Words([name], {}))
            for earlier in names[:number]:
                self._state_when_handled()
                self.do_join(Words([earlier], {}))
            for joined in names[: number + 1]:
                self._until_answered(self._client(joined))
        return []

    def _until_answered(self, client: Client) -> None:
        def answered() -> bool:
            self._answers()
            return all(waiting.client is not client for waiting in self.waiting)

        wait_until(answered, f"the answer to {client.name}")


def _is_version(word: str) -> bool:
    return word[0] == "v" and word[1:].isdigit()


def _version(words: Words, default: int) -> int:
    """Take `v3` out of the words."""
    for word in words.plain:
        if _is_version(word):
            words.plain.remove(word)
            return int(word[1:])
    return default


def connector(bootstrap: str, definitions: Definitions, opened: list[RawConnection]) -> Callable[[], RawConnection]:
    """Makes connections to a broker, and puts them into `opened`, to be closed in the end."""

    def connect() -> RawConnection:
        opened.append(RawConnection(bootstrap, definitions))
        # Until the broker has taken a connection on, what is sent there may be overtaken by any number of requests.
        opened[-1].request("ApiVersions", 0)
        return opened[-1]

    return connect


def play(
    scenario: Scenario,
    side: str,
    bootstrap: str,
    definitions: Definitions,
    *,
    is_recorded: bool = False,
    show: Callable[[Json, Names], str] = show_group,
    suffix: str = "",
) -> Outcomes:
    """Play a scenario to one broker, to its end or the first step whose outcome is not that of the file.

    The group has the scenario's name and `suffix`.
    """
    opened: list[RawConnection] = []
    outcomes: Outcomes = {}
    try:
        player = Player(connector(bootstrap, definitions, opened), scenario.name + suffix, show)
        for step in scenario.steps:
            outcomes[step.line] = player.play(step, None if is_recorded else side)
            if not is_recorded and sorted(outcomes[step.line]) != sorted(step.expected(side)):
                break
    finally:
        for connection in opened:
            connection.close()
    return outcomes
