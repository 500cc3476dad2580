"""Compares what two controllers did with one script (`support.controller_play`), step by step. Pure.

Of each step: the answer, the znodes, and what each broker was told about each partition, in its order. Epochs are
compared by whether they were raised in the step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from support.controller_play import Played
from support.wanted_differences import Wanted

PROPOSED = 5
"""Parts of the answer to an accepted proposal."""
DURING_DELETE = -2
#: Where these stand in an entry of LeaderAndIsr, behind topic and partition.
LEADER_EPOCH, ADDING, IS_NEW = 2, 6, 8
NO_LEADER = -1
#: Steps with which our broker becomes the controller again.
ELECTIONS = ("reelect", "yield")
#: Steps in which brokers are told of all that there is.
WHOLE_STATE = (*ELECTIONS, "register", "return", "speak")
#: Differences after which the states of a partition are not the same any more.
APART = (Wanted.REGISTERED_SINCE,)

Epochs = dict[tuple[str, int], tuple[int, int]]


class Difference(NamedTuple):
    """What differs in a step; `wanted` is None for what should not."""

    step: int
    line: str
    what: str
    ours: Any
    theirs: Any
    wanted: Wanted | None

    def __str__(self) -> str:
        wanted = "" if self.wanted is None else f" ({self.wanted.name})"
        return f"step {self.step}, {self.line}: {self.what}{wanted}\n   ours   {self.ours}\n   theirs {self.theirs}"


class Seen(NamedTuple):
    """A step as it is compared."""

    #: The answer, and the znodes that changed, by path.
    changes: dict[str, Any]
    #: By broker, request, topic and partition: what it was told that it did not know, in order.
    told: dict[str, list[Any]]
    #: Topics that are being deleted.
    deleted: frozenset[str]
    #: Leader and ISR of each partition, at its end.
    states: dict[str, Any]


def differences(ours: Sequence[Played], theirs: Sequence[Played]) -> list[Difference]:
    """All differences; those that are wanted are marked."""
    assert [one["step"] for one in ours] == [one["step"] for one in theirs]
    found = []
    #: Partitions whose states differ since a difference that is wanted, and which.
    apart: dict[str, Wanted] = {}
    for number, (mine, other) in enumerate(zip(_seen(ours), _seen(theirs), strict=True)):
        line = ours[number]["step"]
        for what, one, two, wanted in _different(mine, other, line):
            partition = _partition(what, line)
            if wanted in APART:
                apart.setdefault(partition, wanted)
            found.append(Difference(number, line, what, one, two, wanted or apart.get(partition)))
        for partition in list(apart):
            if mine.states.get(partition) == other.states.get(partition):
                del apart[partition]
    return found


def _partition(what: str, line: str) -> str:
    """The partition that a difference is about, in the words `topic-0`; "" for none."""
    if what.endswith("/state"):
        return "{}-{}".format(*_place(what))
    words = line.split() if what == "answer" else what.split()
    found = [word for word in words if re.fullmatch(r"\w+-\d+", word)]
    return found[0] if found else ""


def _different(ours: Seen, theirs: Seen, line: str) -> Iterator[tuple[str, Any, Any, Wanted | None]]:
    deleted = ours.deleted | theirs.deleted
    for what in sorted({*ours.changes, *theirs.changes}):
        one, two = ours.changes.get(what), theirs.changes.get(what)
        if one != two:
            yield what, one, two, _wanted_change(what, one, two, deleted, line)
    for what in sorted({*ours.told, *theirs.told}):
        said, expected = ours.told.get(what, []), theirs.told.get(what, [])
        if said != expected:
            wanted = _wanted(what, said, expected, deleted)
            if not said and " LeaderAndIsr " in what and line.split()[0] not in WHOLE_STATE:
                # Of a change in this step it would have had to hear.
                wanted = wanted or (Wanted.REPEATED if all(word[2] == "same" for word in expected) else None)
            if line.startswith("return ") and what.endswith(" brokers") and not said:
                wanted = Wanted.PASSED_OVER
            elif wanted is None and line in ELECTIONS and _only_epochs_raised(said, expected):
                wanted = Wanted.LEADS_ON
            yield what, said, expected, wanted


def _wanted_change(what: str, ours: Any, theirs: Any, deleted: frozenset[str], line: str) -> Wanted | None:
    if what.endswith("/state"):
        if what.split("/")[3] in deleted:
            return Wanted.DELETED
        if ours is None and theirs is not None and theirs["leader"] == NO_LEADER:
            return Wanted.OFFLINE_AGAIN
        if line in ELECTIONS and ours is not None and (theirs is None or set(ours["isr"]) < set(theirs["isr"])):
            return Wanted.REGISTERED_SINCE
    if what == "answer" and _partition(what, line).rpartition("-")[0] in deleted and isinstance(ours, str):
        return Wanted.DELETED  # a proposal's sender is the leader in the znode
    if what == "answer" and theirs == "no answer" and isinstance(ours, list):
        return Wanted.UNANSWERED
    if what == "answer" and line.startswith(("create ", "grow ")) and (ours, theirs) == ("NONE", "REQUEST_TIMED_OUT"):
        return Wanted.NOT_WAITED
    return None


def _wanted(what: str, said: list[Any], expected: list[Any], deleted: frozenset[str]) -> Wanted | None:
    words = what.split()
    if words[1] != "brokers" and words[2].rpartition("-")[0] in deleted:
        return Wanted.DELETED
    if said and expected and said[-1] == expected[-1]:
        if words[1] == "brokers" or _is_part(*(list(map(_plain, one)) for one in (said, expected))):
            return Wanted.PASSED_OVER
        if _is_part(expected, said) and said[0][2] == "same":
            return Wanted.TOLD_BEFORE
        if words[1] == "UpdateMetadata" and len(said) == len(expected) and _but_offline(said) == _but_offline(expected):
            return Wanted.ANSWERED_TOGETHER
    if words[1] != "brokers" and _without_leader(said) == _without_leader(expected) != []:
        return Wanted.OFFLINE_AGAIN
    return None


def _plain(word: Any) -> Any:
    """A word, without its epochs where there is no leader."""
    return [word[0], word[1], word[3], *word[5:]] if word[1] == NO_LEADER else word


def _but_offline(told: list[Any]) -> list[Any]:
    return [one[:-1] for one in told]


def _without_leader(told: list[Any]) -> list[Any]:
    """What is said of a partition that has no leader before and after, once, without its epochs."""
    if any(not isinstance(one, list) or one[1] != NO_LEADER for one in told):
        return []
    plain = list(map(_plain, told))
    return plain[-1:] if all(one == plain[0] for one in plain) else []


def _only_epochs_raised(said: list[Any], expected: list[Any]) -> bool:
    """Whether leader epochs are the whole difference: raised here, the same there."""
    if len(said) != len(expected) or any(not isinstance(one, list) for one in (*said, *expected)):
        return False
    pairs = [pair for one, other in zip(said, expected, strict=True) for pair in zip(one, other, strict=True)]
    return all(mine == theirs or (mine, theirs) == ("raised", "same") for mine, theirs in pairs)


def _is_part(some: list[Any], whole: list[Any]) -> bool:
    """Whether one list is the other without some elements."""
    rest = iter(whole)
    return all(any(each == other for other in rest) for each in some)


def _seen(played: Sequence[Played]) -> Iterator[Seen]:
    znodes: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    #: What was said to brokers that are mute: it counts when they answer.
    held: dict[str, list[Any]] = {}
    term = None
    for one in played:
        epochs = _epochs(znodes)
        marked = _marked(znodes)
        for path, data in one["znodes"].items():
            if data is None:
                znodes.pop(path, None)
            else:
                znodes[path] = data
        kind, *words = one["step"].split() or [""]
        deleted = marked | _marked(znodes) | ({words[0]} if kind in ("delete", "mark") else set())
        if kind in ("register", "return", "die"):
            memory = {what: word for what, word in memory.items() if what.split()[0] != words[0]}
        if znodes.get("/controller_epoch") != term:
            term, memory = znodes.get("/controller_epoch"), {}
        said = dict(one["said"])
        if kind == "mute":
            held[words[0]] = []
        if kind == "speak":
            said[words[0]] = [*held.pop(words[0], []), *said.get(words[0], [])]
        elif kind in ("die", "return"):
            held.pop(words[0], None)
        for broker, requests in held.items():
            # One request is in flight, and how many wait behind it nobody sees.
            requests += said.pop(broker, [])
        changes = {path: _changed(path, data, epochs) for path, data in one["znodes"].items()}
        changes["answer"] = _answer(one, epochs)
        states = {
            "{}-{}".format(*_place(path)): (data["leader"], sorted(data["isr"]))
            for path, data in znodes.items()
            if path.endswith("/state")
        }
        yield Seen(changes, _told(said, epochs, memory), frozenset(deleted), states)


def _marked(znodes: dict[str, Any]) -> set[str]:
    return {path.rpartition("/")[2] for path in znodes if path.startswith("/admin/delete_topics/")}


def _place(path: str) -> tuple[str, int]:
    _, _, _, topic, _, index, _ = path.split("/")
    return topic, int(index)


def _epochs(znodes: dict[str, Any]) -> Epochs:
    return {
        _place(path): (data["leader_epoch"], data["partition_epoch"])
        for path, data in znodes.items()
        if path.endswith("/state")
    }


def _raised(now: int, before: int | None) -> str:
    if before is None:
        return "first" if now == 0 else "later than first"
    return "same" if now == before else "raised" if now > before else "lowered"


def _changed(path: str, data: Any, epochs: Epochs) -> Any:
    if data is None or not path.endswith("/state"):
        return data
    before = epochs.get(_place(path), (None, None))
    return {
        **data,
        "leader_epoch": _raised(data["leader_epoch"], before[0]),
        "partition_epoch": _raised(data["partition_epoch"], before[1]),
        "isr": sorted(data["isr"]),
    }


def _answer(one: Played, epochs: Epochs) -> Any:
    answer = one["result"]
    if not isinstance(answer, list) or len(answer) != PROPOSED:
        return answer
    topic, _, index = one["step"].split()[1].rpartition("-")
    before = epochs.get((topic, int(index)), (None, None))
    leader, leader_epoch, isr, recovery, partition_epoch = answer
    return [leader, _raised(leader_epoch, before[0]), sorted(isr), recovery, _raised(partition_epoch, before[1])]


def _told(said: dict[str, list[Any]], epochs: Epochs, memory: dict[str, Any]) -> dict[str, list[Any]]:
    """What brokers were told that they did not know; `memory` is what they knew before."""
    told: dict[str, list[Any]] = {}
    for broker, requests in said.items():
        for name, _epoch, entries, *live in requests:
            if name == "UpdateMetadata":
                _note(told, memory, f"{broker} brokers", live[0], live[0])
            for topic, index, *entry in entries:
                what = f"{broker} {name} {topic}-{index}"
                before = epochs.get((topic, index), (None, None))
                if name == "StopReplica":
                    word = "delete" if entry[1] else "stop"
                    told.setdefault(what, [])
                    if told[what][-1:] != [word]:
                        told[what].append(word)
                    if entry[1]:
                        memory.pop(f"{broker} LeaderAndIsr {topic}-{index}", None)
                    continue
                # Brokers obey a LeaderAndIsr only if its leader epoch is another one.
                known = entry if name == "UpdateMetadata" else entry[: LEADER_EPOCH + 1]
                if name == "LeaderAndIsr" and int(broker) in entry[ADDING]:
                    entry = [*entry[:IS_NEW], "added", *entry[IS_NEW + 1 :]]
                _note(told, memory, what, known, _entry(name, entry, before))
    return told


def _note(told: dict[str, list[Any]], memory: dict[str, Any], what: str, known: Any, word: Any) -> None:
    if memory.get(what) != known:
        memory[what] = known
        told.setdefault(what, []).append(word)


def _entry(name: str, entry: list[Any], before: tuple[int | None, int | None]) -> list[Any]:
    topic_id, leader, leader_epoch, isr, partition_epoch, *rest = entry
    if name == "UpdateMetadata":
        rest = [rest[0], sorted(rest[1])]  # the replicas, and those that are offline
    if leader == DURING_DELETE:
        return [topic_id, leader, sorted(isr), *rest]
    return [
        topic_id,
        leader,
        _raised(leader_epoch, before[0]),
        sorted(isr),
        _raised(partition_epoch, before[1]),
        *rest,
    ]
