"""What a release leaves on disk, kept as a file, so that every later one can be seen to continue from it.

`python -m support.kept_state FILE.tar.xz` makes the file with the release that is imported: a broker's data directory
with topics, a group and znodes, a table of each format with its pipeline's checkpoint, the checkpoints of an online
pipeline, of a plain Spark query and of a mirror.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

from ottla.client.model import TopicPartition
from ottla.client.sync import Client, Consumer, Producer
from support.ottla_server import OttlaServer

TOPIC, GROUP = "events", "readers"
PARTITIONS = 2
#: Records that the kept state holds, and those of them that the group has read.
KEPT_RECORDS, READ_RECORDS = 200, 60
RUN_TIMEOUT_S = 500
#: Of Iceberg tables, whose metadata hold absolute paths: the directory of whichever process reads them.
HERE = "/proc/self/cwd"

ARCHIVE = """
name = "{kind}"
kind = "archive"
checkpoint = "state/{kind}"
trigger.available_now = true
[source]
topics = ["events"]
value_format = "json"
schema = "number INT, at TIMESTAMP"
[[steps]]
sql = "SELECT number, at, CAST(at AS DATE) AS day FROM source"
[sink]
kind = "{kind}"
partition_by = ["day"]
"""
FILES = {
    "parquet": ARCHIVE + 'path = "tables/parquet"\n',
    "delta": ARCHIVE + 'path = "tables/delta"\n',
    "iceberg": ARCHIVE
    + f"""catalog = "kept"
table = "kept.events"
[sink.catalog_options]
type = "sql"
uri = "sqlite:///{HERE}/catalog.db"
warehouse = "file://{HERE}/tables/iceberg"
""",
    "online": """
name = "online"
kind = "online"
checkpoint = "state/online"
trigger.available_now = true
[source]
topics = ["events"]
value_format = "json"
schema = "number INT"
[[steps]]
sql = "SELECT number % 5 AS five, count(*) AS events FROM source GROUP BY number % 5"
[sink]
kind = "database"
url = "sqlite:totals.db"
table = "totals"
key_columns = ["five"]
""",
    "mirror": """
name = "mirror"
kind = "mirror"
checkpoint = "state/mirror"
trigger.available_now = true
[mirror]
source_alias = "west"
target_alias = "east"
source_bootstrap_servers = "${env:OTTLA_BOOTSTRAP_SERVER}"
target_bootstrap_servers = "${env:TARGET}"
topics = "events"
""",
}
#: The plain Spark query.
QUERY = """
import os, sys
import ottla.spark
spark = ottla.spark.session("kept")
events = spark.readStream.format("ottla").option("kafka.bootstrap.servers", os.environ["OTTLA_BOOTSTRAP_SERVER"])
events = events.option("subscribe", "events").option("startingOffsets", "earliest").load()
query = events.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").writeStream.format("parquet")
query = query.option("path", "tables/query").option("checkpointLocation", "state/query").trigger(availableNow=True)
query.start().awaitTermination()
spark.stop()
"""
ALL = ["iceberg", "mirror", "query", "online", "delta", "parquet"]


def event(number: int) -> bytes:
    """The value of a record."""
    return json.dumps({"number": number, "at": f"2026-03-{1 + number % 3:02}T10:00:00Z"}).encode()


class KeptState:
    """The state in a directory, with its source and target brokers running: a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = OttlaServer(folder / "logs-source", data=folder / "source")
        self.target = OttlaServer(folder / "logs-target", data=folder / "target")

    def __enter__(self) -> KeptState:
        self.source.start()
        self.target.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.source.stop()
        self.target.stop()

    def send(self, numbers: range) -> None:
        """Send records with these numbers."""
        with Producer(bootstrap_servers=self.source.bootstrap) as producer:
            for number in numbers:
                producer.send(TOPIC, event(number), partition=number % PARTITIONS)

    def read_by_group(self, count: int) -> list[int]:
        """Read at least `count` records as the group, and commit just these."""
        found: list[int] = []
        servers = self.source.bootstrap
        with Consumer(bootstrap_servers=servers, group_id=GROUP, auto_offset_reset="earliest", max_poll_records=1,
                      enable_auto_commit=False) as consumer:  # fmt: skip
            consumer.subscribe([TOPIC])
            while len(found) < count:
                found += [json.loads(record.value)["number"] for record in consumer.poll(1000)]
            consumer.commit()
        return found

    def run(self, kind: str) -> None:
        """Run a pipeline, or the plain query, until it has read what is there."""
        path = self.folder / f"{kind}.toml"
        if kind == "query":
            command = [sys.executable, "-c", QUERY]
        else:
            path.write_text(FILES[kind].replace("{kind}", kind))
            command = [sys.executable, "-m", "ottla", "pipeline", "run", path.name]
        servers = {"OTTLA_BOOTSTRAP_SERVER": self.source.bootstrap, "TARGET": self.target.bootstrap}
        done = subprocess.run(
            command, cwd=self.folder, env=os.environ | servers, capture_output=True, text=True,
            timeout=RUN_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{kind}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def numbers(self, kind: str) -> list[int]:
        """The numbers of the records that arrived, sorted; of the online pipeline the totals."""
        reader = {"online": self._totals, "mirror": self._mirrored, "delta": self._delta, "iceberg": self._iceberg}
        return sorted(reader.get(kind, lambda: self._parquet(kind))())

    def _parquet(self, kind: str) -> list[int]:
        import pyarrow.dataset

        folder = self.folder / "tables" / kind
        files = [str(path) for path in folder.rglob("*.parquet") if not path.name.startswith(("_", "."))]
        table = pyarrow.dataset.dataset(files).to_table()
        if kind == "query":
            return [json.loads(value)["number"] for value in table["value"].to_pylist()]
        return list(table["number"].to_pylist())

    def _delta(self) -> list[int]:
        from deltalake import DeltaTable

        return list(DeltaTable(self.folder / "tables" / "delta").to_pyarrow_table()["number"].to_pylist())

    def _iceberg(self) -> list[int]:
        program = """
import json
from pyiceberg.catalog import load_catalog
catalog = load_catalog("kept", type="sql", uri="sqlite:///HERE/catalog.db", warehouse="file://HERE/tables/iceberg")
print(json.dumps(catalog.load_table("kept.events").scan().to_arrow()["number"].to_pylist()))
""".replace("HERE", HERE)
        command = [sys.executable, "-W", "ignore", "-c", program]
        found: list[int] = json.loads(subprocess.check_output(command, cwd=self.folder, text=True))
        return found

    def _totals(self) -> list[int]:
        with closing(sqlite3.connect(self.folder / "totals.db")) as database:
            return [events for (events,) in database.execute("SELECT events FROM totals")]

    def _mirrored(self) -> list[int]:
        found: list[int] = []
        with Consumer(bootstrap_servers=self.target.bootstrap) as consumer:
            partitions = [TopicPartition(f"west.{TOPIC}", number) for number in range(PARTITIONS)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(each) < end for each, end in ends.items()):
                found += [json.loads(record.value)["number"] for record in consumer.poll(1000)]
        return found


def make(path: Path) -> None:
    """Make the state and pack it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "kept"
        folder.mkdir()
        with KeptState(folder) as state:
            with Client(state.source.bootstrap) as client:
                client.create_topic(TOPIC, PARTITIONS)
            state.send(range(KEPT_RECORDS))
            (folder / "read.json").write_text(json.dumps(state.read_by_group(READ_RECORDS)))
            for kind in ALL:
                state.run(kind)
                print(kind, len(state.numbers(kind)), flush=True)
        with tarfile.open(path, "w:xz") as archive:
            for each in sorted(folder.iterdir()):
                if not each.name.startswith("logs-"):
                    archive.add(each, each.name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
