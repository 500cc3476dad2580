"""Exactly once, with offsets in the application's own database.

Sums what is booked per account, from records whose keys are accounts and whose values are amounts. The sums and the
offsets of the next records are in one SQLite database and change in one transaction, so that whatever happens, every
record counts exactly once: killed at any point, the program continues where its last transaction ended.

    python examples/exactly_once_sqlite.py localhost:9092 bookings bookings.db

The group shares out the partitions among as many of these programs as are started; offsets are not committed to Kafka.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from ottla.client import ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from ottla.client.sync import Consumer

TABLES = """
CREATE TABLE IF NOT EXISTS sums (account TEXT PRIMARY KEY, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT, "partition" INTEGER, next INTEGER NOT NULL, PRIMARY KEY (topic, "partition")
);
"""
#: Two programs may have one partition for a moment, when one of them was slow and does not know yet that it lost it.
#: The second of them finds another offset than it read from, and gives up its transaction.
MOVE_ON = 'UPDATE offsets SET next = ? WHERE topic = ? AND "partition" = ? AND next = ?'
BOOK = """
INSERT INTO sums VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET amount = amount + excluded.amount
"""


class Bookings:
    """The database: sums of accounts, and how far each partition is counted."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30)
        self._database.executescript(TABLES)

    def next_offset(self, partition: TopicPartition) -> int:
        """The first record that is not counted yet."""
        with self._database:
            self._database.execute("INSERT OR IGNORE INTO offsets VALUES (?, ?, 0)", partition)
        row = self._database.execute('SELECT next FROM offsets WHERE topic = ? AND "partition" = ?', partition)
        offset: int = row.fetchone()[0]
        return offset

    def book(self, partition: TopicPartition, records: Sequence[ConsumerRecord[str, str]]) -> bool:
        """Count records that follow one another, and note how far it got; False where another program was faster."""
        with self._database:
            moved = self._database.execute(MOVE_ON, (records[-1].offset + 1, *partition, records[0].offset))
            if moved.rowcount == 0:
                return False
            self._database.executemany(BOOK, [(record.key, int(record.value)) for record in records])
        return True

    def close(self) -> None:
        """Close it; what is not committed does not count."""
        self._database.close()


class SeekToStored(ConsumerRebalanceListener):
    """Begins each partition where the database says."""

    def __init__(self, consumer: Consumer[str, str], bookings: Bookings) -> None:
        self._consumer = consumer
        self._bookings = bookings

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Go to the stored offset of each."""
        for partition in partitions:
            self._consumer.seek(partition, self._bookings.next_offset(partition))


def run(bootstrap: str, topic: str, bookings: Bookings, group: str, name: str | None) -> None:
    """Count until the program is interrupted."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        # A program with a name gets the same partitions again when it is back soon.
        "group.instance.id": name,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "max.poll.records": 100,
        "key.deserializer": "StringDeserializer",
        "value.deserializer": "StringDeserializer",
    }
    with Consumer[str, str](settings) as consumer:
        consumer.subscribe([topic], SeekToStored(consumer, bookings))
        while True:
            records = consumer.poll(timeout_ms=1000)
            for partition in records.partitions():
                if not bookings.book(partition, records.records(partition)):
                    # Somebody else has counted these; read on where the database is now.
                    consumer.seek(partition, bookings.next_offset(partition))


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Sums bookings exactly once.")
    parser.add_argument("bootstrap", help="for instance localhost:9092")
    parser.add_argument("topic")
    parser.add_argument("database", help="a file; made where it is not there")
    parser.add_argument("--group", default="bookings")
    parser.add_argument("--name", help="group.instance.id of this program")
    given = parser.parse_args()
    with closing(Bookings(given.database)) as bookings:
        try:
            run(given.bootstrap, given.topic, bookings, given.group, given.name)
        except KeyboardInterrupt:
            print("interrupted; started again, it goes on from here")


if __name__ == "__main__":
    main()
