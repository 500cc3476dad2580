"""Scripts of what happens to a controller: one broker that decides, all others played by the test. Pure.

A script is a list of steps, a line each:

register N | die N | return N          a broker comes, goes, comes again before anybody saw it go
shutdown N                             it asks for a controlled shutdown
mute N | speak N                       it leaves control requests without an answer, and answers them later
fail N T-P                             its replica's log directory fails, and it says so
create T 1+2,2+3 [setting=value]       by CreateTopics, with the replicas of each partition
found T 1+2,2+3                        as old tools do it: in the znodes, without an id
grow T 2+1,3+1                         adds partitions with these replicas
delete T | mark T                      by DeleteTopics, or by its znode
shrink T-P [options]                   the leader proposes an ISR without its last other member
expand T-P [options]                   the leader proposes all replicas that are registered
propose T-P 1+2 [options]              it proposes this ISR
prefer T-P .. | unclean T-P ..         ElectLeaders
elect T-P ..                           a preferred election, asked for in its znode
move T-P 3+2                           a reassignment, asked for in its znode
describe                               the controller's own Metadata of all topics
reelect                                /controller is deleted
usurp | yield                          another broker takes the place of the controller, and leaves it again

Options of a proposal: with=N adds a broker to an expansion; epoch=+1, version=-1, registration=-1 are other epochs of
the leader, the partition, the broker than those that hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable

#: Brokers that the test plays.
BROKERS = (1, 2, 3, 4)
#: Of these the first steps register all but the last.
STEPS = 15
TOPICS = ("a", "b", "c")
#: A broker that there never was.
UNKNOWN = 99
WRONG = ("epoch=-1", "epoch=+1", "version=-1", "version=+1", "registration=-1")
#: Scripts for what chance does not bring.
BY_HAND = {
    # Partitions that have no leader at first, and what becomes of them at an election and when their broker comes.
    "first-leaders": (
        "register 1; register 2; create a 1+2,3+4; shutdown 2; create b 2+4,1+2; reelect; register 3; reelect"
    ),
    # A broker that does not answer holds up a deletion, not those who ask for it.
    "held-deletion": (
        "register 1; register 2; create a 1+2,2+1; mute 1; delete a; create a 2; grow a 2+1; delete a; create b "
        "2+1; speak 1; create a 2+1"
    ),
    # Proposals that name what is not there (any more).
    "refused": (
        "register 1; register 2; create a 1+2; expand a-0 with=99; shrink a-0; expand a-0 with=3; die 2; expand "
        "a-0 with=2; shrink a-0 registration=-1; shrink a-0 epoch=+1; shrink a-0 epoch=-1; shrink a-0 version=+1; "
        "register 2; expand a-0 version=-1; expand a-0; return 2; expand a-0; shutdown 2; expand a-0"
    ),
    # Log directories that fail: of a leader, of a follower in sync, of one that is added.
    "failed-directories": (
        "register 1; register 2; register 3; create a 1+2+3,2+3+1,3+1+2; create b 3; fail 1 a-0; fail 3 a-0; fail "
        "3 b-0; shrink a-1; fail 3 a-1; fail 1 c-0; create c 2+1; move a-2 2+3; reelect; return 3; return 1; "
        "unclean b-0"
    ),
    # Elections of preferred replicas, before and after they are in sync; unclean ones, and the recovery after them.
    "elections": (
        "register 1; register 2; register 3; create a 1+2,2+1,1+3; die 1; prefer a-0; register 1; prefer a-0; "
        "expand a-0; prefer a-0 a-1; expand a-2; elect a-2; shrink a-0; shrink a-0; unclean a-0; die 1; unclean "
        "a-0; register 1; expand a-0; prefer a-0; elect a-0 a-1"
    ),
    # Brokers that shut down one after the other, until nobody is left to lead.
    "shutdowns": (
        "register 1; register 2; register 3; create a 1+2+3,2+3+1,3+1+2; shrink a-1; shutdown 1; prefer a-0; "
        "shutdown 2; die 1; register 1; expand a-0; shutdown 3; shutdown 1; die 3; die 2; die 1; register 2; "
        "register 3; elect a-0"
    ),
    # Replicas of the controller's own broker, which leads and follows, too.
    "own-replicas": (
        "register 1; register 2; create a 0+1,1+0,0+2; shrink a-0; expand a-0; die 1; register 1; prefer a-1; "
        "expand a-1; prefer a-1; reelect; move a-2 1; expand a-2; move a-1 2+0; register 3; expand a-1; fail 1 "
        "a-0; create b 0; grow b 2; usurp; die 2; return 1; yield; delete a; delete b; register 2"
    ),
    # What the controller's own broker answers about replicas that are offline, as it sends it to the others.
    "own-metadata": (
        "register 1; register 2; register 3; create a 0+1+2,1+2+0,3+0+1; create b 3; describe; die 1; describe; "
        "reelect; describe; register 1; describe; expand a-0; fail 2 a-0; describe; shrink a-1; fail 2 a-1; describe; "
        "return 2; describe; shutdown 3; describe; die 3; describe"
    ),
    # Requests to the controller that reach a broker which is not the controller (any more).
    "elsewhere": (
        "register 1; register 2; create a 1+2,2+1; usurp; prefer a-0; unclean a-0 a-1 b-0; shutdown 2; create b 1; "
        "grow a 1+2; delete a; shrink a-0; yield; prefer a-0; shutdown 2"
    ),
    # Moves: to a broker that is not there yet, replaced by another, done by an election, ended by a deletion.
    "moves": (
        "register 1; register 2; register 3; create a 1+2,2+3,3+1; move a-0 3+4; grow a 1+2; register 4; expand "
        "a-0; move a-1 1+4; reelect; expand a-1; move a-2 1; die 3; register 3; expand a-2; move a-0 4+1; move a-1 "
        "2+3; die 1; delete a; register 1"
    ),
}


def by_hand(name: str) -> list[str]:
    """The steps of a script made by hand."""
    return BY_HAND[name].split("; ")


def generate(seed: int, steps: int = STEPS) -> list[str]:
    """The script of a seed: brokers that register and a topic, then `steps` at random."""
    return Generator(random.Random(seed)).script(steps)


class Generator:
    """Makes a script, and keeps in mind what makes sense: who is registered, which topics there are."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._lines: list[str] = []
        self._live: set[int] = set()
        self._mute: set[int] = set()
        self._leaving: set[int] = set()
        #: Of each topic, how many partitions it has, and replicas of each.
        self._topics: dict[str, tuple[int, int]] = {}
        self._is_usurped = False
        self._kinds: list[tuple[int, Callable[[], str | None]]] = [
            (10, self._die),
            (10, self._register),
            (4, self._return),
            (4, self._shutdown),
            (3, self._mute_one),
            (4, self._speak),
            (2, self._fail),
            (8, self._create),
            (2, self._found),
            (4, self._grow),
            (4, self._delete),
            (1, self._mark),
            (10, lambda: self._proposal("shrink")),
            (10, lambda: self._proposal("expand")),
            (4, self._wrong_proposal),
            (7, lambda: self._election("prefer")),
            (5, lambda: self._election("unclean")),
            (2, lambda: self._election("elect")),
            (7, self._move),
            (3, self._reelect),
            (2, self._usurp),
        ]

    def script(self, steps: int) -> list[str]:
        for number in BROKERS[:-1]:
            self._lines.append(f"register {number}")
            self._live.add(number)
        self._add(self._create)
        weights = [weight for weight, _ in self._kinds]
        length = len(self._lines) + steps
        while len(self._lines) < length:
            [(_, kind)] = self._chance.choices(self._kinds, weights)
            self._add(kind)
        if self._is_usurped:
            self._lines.append("yield")
        return self._lines

    def _add(self, kind: Callable[[], str | None]) -> None:
        line = kind()
        if line is not None:
            self._lines.append(line)

    def _one(self, numbers: set[int]) -> int | None:
        return self._chance.choice(sorted(numbers)) if numbers else None

    def _partition(self) -> str | None:
        if not self._topics:
            return None
        topic = self._chance.choice(sorted(self._topics))
        return f"{topic}-{self._chance.randrange(self._topics[topic][0])}"

    def _replicas(self, count: int | None = None, *, live: bool = False) -> str:
        """Brokers, of those that are registered if there are as many."""
        count = count or self._chance.choice((1, 2, 2, 3, 3))
        known = sorted(self._live) if live and len(self._live) >= count else BROKERS
        return "+".join(map(str, self._chance.sample(known, count)))

    def _new_replicas(self, count: int) -> str:
        """Brokers of which one at least can lead."""
        first = self._chance.choice(sorted(self._live - self._leaving))
        known = sorted(self._live) if len(self._live) >= count and self._chance.random() < 0.6 else BROKERS
        others = self._chance.sample([number for number in known if number != first], count - 1)
        numbers = [first, *others]
        self._chance.shuffle(numbers)
        return "+".join(map(str, numbers))

    def _die(self) -> str | None:
        number = self._one(self._live)
        if number is None or (len(self._live) == 1 and self._chance.random() < 0.7):
            return None
        self._live.discard(number)
        self._mute.discard(number)
        self._leaving.discard(number)
        return f"die {number}"

    def _register(self) -> str | None:
        number = self._one(set(BROKERS) - self._live)
        if number is None:
            return None
        self._live.add(number)
        return f"register {number}"

    def _return(self) -> str | None:
        number = self._one(self._live)
        if number is None:
            return None
        self._mute.discard(number)
        self._leaving.discard(number)
        return f"return {number}"

    def _shutdown(self) -> str | None:
        number = self._one(self._live - self._leaving)
        if number is None or self._is_usurped:
            return None
        self._leaving.add(number)
        return f"shutdown {number}"

    def _mute_one(self) -> str | None:
        number = self._one(self._live - self._mute)
        if number is None or self._mute:
            return None
        self._mute.add(number)
        return f"mute {number}"

    def _speak(self) -> str | None:
        number = self._one(self._mute)
        if number is None:
            return None
        self._mute.discard(number)
        return f"speak {number}"

    def _fail(self) -> str | None:
        number, partition = self._one(self._live - self._mute), self._partition()
        return None if number is None or partition is None or self._is_usurped else f"fail {number} {partition}"

    def _create(self) -> str | None:
        if self._is_usurped:
            return None
        return self._new_topic("create")

    def _found(self) -> str | None:
        if self._is_usurped:
            return None
        return self._new_topic("found")

    def _new_topic(self, how: str) -> str | None:
        electable = sorted(self._live - self._leaving)
        if not electable:
            return None  # a topic that never has a leader is not worth much
        name = next((each for each in TOPICS if each not in self._topics), None)
        if name is None:
            return None
        count, factor = self._chance.choice((1, 2, 3)), self._chance.choice((1, 2, 2, 3, 3))
        self._topics[name] = count, factor
        replicas = ",".join(self._new_replicas(factor) for _ in range(count))
        is_unclean = how == "create" and self._chance.random() < 0.2
        return f"{how} {name} {replicas}{' unclean.leader.election.enable=true' if is_unclean else ''}"

    def _grow(self) -> str | None:
        if not self._topics or self._is_usurped:
            return None
        name = self._chance.choice(sorted(self._topics))
        added, (count, factor) = self._chance.choice((1, 2)), self._topics[name]
        if not self._live - self._leaving:
            return None
        self._topics[name] = count + added, factor
        return f"grow {name} {','.join(self._new_replicas(factor) for _ in range(added))}"

    def _delete(self) -> str | None:
        if self._is_usurped:
            return None
        return self._end_of_topic("delete")

    def _mark(self) -> str | None:
        return self._end_of_topic("mark")

    def _end_of_topic(self, how: str) -> str | None:
        if not self._topics:
            return None
        name = self._chance.choice(sorted(self._topics))
        del self._topics[name]
        return f"{how} {name}"

    def _proposal(self, kind: str) -> str | None:
        partition = None if self._is_usurped else self._partition()
        return None if partition is None else f"{kind} {partition}"

    def _wrong_proposal(self) -> str | None:
        partition = None if self._is_usurped else self._partition()
        if partition is None:
            return None
        dead = sorted(set(BROKERS) - self._live)
        if self._chance.random() < 0.25:
            return f"expand {partition} with={self._chance.choice((*dead, UNKNOWN))}"
        return f"{self._chance.choice(('shrink', 'expand'))} {partition} {self._chance.choice(WRONG)}"

    def _election(self, kind: str) -> str | None:
        if self._is_usurped:
            return None
        found = {self._partition() for _ in range(self._chance.choice((1, 1, 3)))}
        names = sorted(each for each in found if each is not None)
        return f"{kind} {' '.join(names)}" if names else None

    def _move(self) -> str | None:
        partition = self._partition()
        live = self._chance.random() < 0.7
        return None if partition is None else f"move {partition} {self._replicas(live=live)}"

    def _reelect(self) -> str | None:
        return None if self._is_usurped else "reelect"

    def _usurp(self) -> str:
        self._is_usurped = not self._is_usurped
        return "usurp" if self._is_usurped else "yield"
