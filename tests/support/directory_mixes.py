"""Random mixes of what two brokers do in turn to one log folder, and the records that readers must then be given."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

APACHE, OTTLA = "apache", "ottla"
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
PARTITIONS = 2
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
#: The record format that Apache Kafka keeps for a topic when told so, by the version that introduced it.
FORMATS = {0: "0.9.0", 1: "0.10.2"}
#: What librdkafka takes a broker for that does not tell its versions, by the format it then writes.
FALLBACKS = {0: "0.9.0.1", 1: "0.10.0.1"}
PLAIN, IDEMPOTENT, TRANSACTIONAL = "plain", "idempotent", "transactional"


class Writer(NamedTuple):
    """One producer's share of a turn. `magic` is the format in which it sends."""

    kind: str
    codec: str
    magic: int = 2

    def __str__(self) -> str:
        return f"{self.kind}/{self.codec}" + (f"/magic{self.magic}" if self.magic < 2 else "")


class Turn(NamedTuple):
    """One broker's time with the folder. `magic`: the format it keeps; `leaves_open`: a transaction stays open."""

    broker: str
    writers: tuple[Writer, ...]
    cleans: bool
    leaves_open: bool
    ends_open: bool
    killed: bool
    magic: int = 2

    def __str__(self) -> str:
        words = [str(writer) for writer in self.writers]
        if self.magic < 2:
            words.insert(0, f"keeps magic {self.magic}")
        words += ["the open transaction is ended"] * self.ends_open + ["a transaction left open"] * self.leaves_open
        words += ["cleaned"] * self.cleans + ["killed" if self.killed else "stopped"]
        return f"{self.broker}: {', '.join(words)}"


class Mix(NamedTuple):
    """What happens to one folder; made from its number alone."""

    number: int
    config: dict[str, str]
    turns: tuple[Turn, ...]

    @property
    def compacted(self) -> bool:
        """Whether a cleaner may take older values of a key away."""
        return "compact" in self.config["cleanup.policy"]

    def __str__(self) -> str:
        """A short name, for the test's id."""
        ends = [turn.broker + ("-killed" if turn.killed else "") for turn in self.turns]
        return "-".join([f"{self.number:02}", *ends, *["compacted"] * self.compacted])

    def described(self) -> str:
        """All of it, for the message of a failure."""
        return "\n".join([f"mix {self.number}: {self.config}", *map(str, self.turns)])


def random_mix(number: int) -> Mix:
    """The mix of this number: even ones begin with Apache Kafka, odd ones with us."""
    chance = random.Random(f"mix {number}")
    brokers = [APACHE, OTTLA, APACHE] if number % 2 == 0 else [OTTLA, APACHE, OTTLA]
    compacted = number % 4 in (1, 2)
    # Transactions do not go together with a format that Apache Kafka keeps afterwards.
    old_at = brokers.index(APACHE) if number % 3 == 2 else None
    topic_codecs = CODECS if old_at is None else CODECS[:-1]
    config = {
        "cleanup.policy": chance.choice(["compact", "compact,delete"]) if compacted else "delete",
        "compression.type": chance.choice(["producer", "producer", "uncompressed", *topic_codecs[1:]]),
        "segment.bytes": str(chance.choice([2_500, 4_000, 8_000] if compacted else [2_500, 10_000, 1 << 20])),
        "index.interval.bytes": str(chance.choice([0, 300, 4096])),
        "message.timestamp.type": chance.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        "min.cleanable.dirty.ratio": "0",
    }
    turns: list[Turn] = []
    for position, broker in enumerate(brokers):
        magic = chance.choice([0, 1]) if position == old_at else 2
        ends_open = broker == APACHE and any(turn.leaves_open for turn in turns) and chance.random() < 0.6
        transactions = broker == APACHE and magic == 2
        turn = Turn(
            broker,
            tuple(_writers(chance, magic, transactions)),
            cleans=compacted and (chance.random() < 0.6 or position == len(brokers) - 1),
            leaves_open=transactions and chance.random() < 0.6,
            ends_open=ends_open,
            killed=chance.random() < 0.5,
            magic=magic,
        )
        turns.append(turn)
    return Mix(number, config, tuple(turns))


def _writers(chance: random.Random, magic: int, transactions: bool) -> list[Writer]:
    """Three or four writers; format 0 and 1 know neither zstd nor producer ids."""
    codecs = CODECS if magic == 2 else CODECS[:-1]
    kinds = [PLAIN] if magic < 2 else [PLAIN, IDEMPOTENT]
    writers = [Writer(chance.choice(kinds), chance.choice(codecs)) for _ in range(2)]
    sent = chance.choice([0, 1])
    # In format 0 lz4 has a frame of its own kind, which librdkafka's fallback does not write.
    writers.append(Writer(PLAIN, chance.choice(CODECS[: 3 + sent]), sent))
    if transactions:
        writers.append(Writer(TRANSACTIONAL, chance.choice(codecs)))
    chance.shuffle(writers)
    return writers


class Sent(NamedTuple):
    """A record that a broker acknowledged; `transaction` names the one it belongs to."""

    key: bytes
    value: bytes | None
    transaction: str | None = None


class Row(NamedTuple):
    """A record as a consumer was given it."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: tuple[int, int]
    headers: tuple[Any, ...]


#: What a reader was given, by partition.
View = tuple[tuple[Row, ...], ...]


@dataclass
class Model:
    """What was sent to each partition, by offset, and how each transaction ended (None: it has not)."""

    sent: list[dict[int, Sent]] = field(default_factory=lambda: [{} for _ in range(PARTITIONS)])
    committed: dict[str, bool | None] = field(default_factory=dict)
    #: Sent when the broker was killed, and not acknowledged: there, or not.
    unsure: set[tuple[int, bytes, bytes | None]] = field(default_factory=set)
    #: Why records were not acknowledged.
    refused: list[str] = field(default_factory=list)

    def delivered(self, transaction: str | None = None) -> Callable[[Any, Any], None]:
        """A delivery callback that takes acknowledged records in."""

        def take(error: Any, message: Any) -> None:
            if error is not None:
                self.refused.append(str(error))
            else:
                sent = Sent(message.key(), message.value(), transaction)
                assert message.offset() not in self.sent[message.partition()], "an offset was given twice"
                self.sent[message.partition()][message.offset()] = sent

        return take

    def take_unsure(self, view: View) -> None:
        """Take in what turned out to be there."""
        for partition, rows in enumerate(view):
            for row in rows:
                if row.offset not in self.sent[partition] and (partition, row.key, row.value) in self.unsure:
                    self.sent[partition][row.offset] = Sent(row.key, row.value)
        self.unsure.clear()

    def first_open(self, partition: int) -> int | None:
        """The offset at which an open transaction begins."""
        open_ones = [o for o, one in self.sent[partition].items() if self._is_open(one)]
        return min(open_ones, default=None)

    def _is_open(self, one: Sent) -> bool:
        return one.transaction is not None and self.committed[one.transaction] is None

    def expected(self, partition: int, isolation: str) -> dict[int, Sent]:
        """What a reader is given of a log that was not compacted."""
        everything = dict(sorted(self.sent[partition].items()))
        if isolation == READ_UNCOMMITTED:
            return everything
        end = self.first_open(partition)
        return {
            offset: one
            for offset, one in everything.items()
            if (end is None or offset < end) and (one.transaction is None or self.committed[one.transaction])
        }

    def check(self, views: dict[str, View], compacted: bool) -> None:
        """AssertionError unless these views are right."""
        for isolation, view in views.items():
            for partition, rows in enumerate(view):
                found = {row.offset: (row.key, row.value) for row in rows}
                assert list(found) == sorted(found), "offsets ascend"
                expected = self.expected(partition, isolation)
                where = f"{isolation}, partition {partition}"
                wrong = {o: one for o, one in found.items() if o not in expected or one != expected[o][:2]}
                assert not wrong, f"{where}: not what was sent: {few(wrong)}"
                missing = (self._must_stay(partition, isolation) if compacted else expected).keys() - found.keys()
                assert not missing, f"{where}: lost: {few({o: expected[o] for o in sorted(missing)})}"

    def _must_stay(self, partition: int, isolation: str) -> dict[int, Sent]:
        """The newest committed record of each key; to those who read all, all behind an open transaction's begin."""
        newest = {one.key: offset for offset, one in self.expected(partition, READ_COMMITTED).items()}
        kept = {offset: self.sent[partition][offset] for offset in newest.values()}
        end = self.first_open(partition)
        if isolation == READ_UNCOMMITTED and end is not None:
            kept |= {offset: one for offset, one in self.sent[partition].items() if offset >= end}
        return kept


def few(rows: dict[int, Any]) -> str:
    """The first of them, and how many there are."""
    return f"{len(rows)} of them, {dict(list(rows.items())[:3])}"


def differences(before: Sequence[Row], after: Sequence[Row]) -> str:
    """Where two readers were given something else."""
    ours, theirs = dict(enumerate(before)), dict(enumerate(after))
    places = [at for at in sorted(ours | theirs) if ours.get(at) != theirs.get(at)]
    return "; ".join(f"row {at}: {ours.get(at)} became {theirs.get(at)}" for at in places[:3]) + f" ({len(places)})"
