"""CSV and Parquet in and out of topics, with a broker in this process."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from ottla.client.sync import Producer
from ottla.testing import Broker
from support.command_line import ottla_at, shown_at

pytestmark = pytest.mark.spec("U2")

TOPICS = ("source", "again", "flat", "typed", "shown", "parquet", "tables", "refused", "headers")
HEADERS = [("h", b"\xff"), ("h", None), ("t", "é".encode())]
#: The times of these records are long past.
KEPT = {"log.retention.ms": -1}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with (
        Broker(dict.fromkeys(TOPICS, 1) | {"two": 2}, settings=KEPT) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send("source", b'a "quoted",\nvalue', b"k", timestamp=1_000, headers=HEADERS)
        producer.send("source", b"", None, timestamp=2_000)
        producer.send("source", None, b"", timestamp=3_000)
        producer.send("source", b"\x00\xff\r", b"\xff", timestamp=4_000)
        for value in ('{"city": "Oslo", "n": 1, "more": [1], "half": "\\ud800"}', '{"n": 2.5, "city": null}'):
            producer.send("shown", value.encode(), b"k")
        producer.send("shown", b"text", b"last")
        producer.flush()
        yield broker


def records(broker: Broker, topic: str) -> list[dict[str, Any]]:
    lines = shown_at(broker, "consume", topic, "-o", "beginning", "-e", "--json").splitlines()
    return [{**json.loads(line), "topic": ""} for line in lines]


def values(broker: Broker, topic: str) -> list[tuple[Any, Any]]:
    return [(each.get("key"), json.loads(each["value"])) for each in records(broker, topic)]


def test_csv_makes_the_same_records_again(broker: Broker, tmp_path: Path) -> None:
    of_null = ("-Z", "NULL")
    rows = shown_at(broker, "consume", "source", "-o", "beginning", "-e", "--format", "csv", *of_null)
    head, first = rows.split(b"\n", 1)
    assert head == b"key,value,headers,partition,offset,timestamp"
    assert first.startswith(b'k,"a ""quoted"",\nvalue","[{""key"": ""h"", ""value_hex"": ""ff""}, ')
    (tmp_path / "rows.csv").write_bytes(rows)
    written = shown_at(broker, "produce", "again", "--format", "csv", *of_null, str(tmp_path / "rows.csv"))
    assert written == b"4 records written to again: partition 0 offsets 0 to 3\n"
    assert records(broker, "again") == records(broker, "source")


def test_columns_are_fields_of_values(broker: Broker) -> None:
    done = ottla_at(
        broker, "consume", "shown", "-o", "beginning", "-n", "2", "--format", "csv", "--columns", "offset,n,city,more,x"
    )
    assert done.stdout == "offset,n,city,more,x\n0,1,Oslo,[1],null\n1,2.5,null,null,null\n"
    done = ottla_at(broker, "consume", "shown", "-o", "-1", "-e", "--format", "csv", "--columns", "n", "-Z", "")
    assert (done.exit_code, done.stderr.split(";")[0]) == (
        2,
        "ottla consume: shown-0 offset 2: its value is not a JSON object, which has fields",
    )
    done = ottla_at(broker, "consume", "shown", "-o", "0", "-e", "--format", "csv", "--columns", "n,half")
    assert (done.exit_code, done.stdout) == (2, "n,half\n1,\\ud800\n2.5,null\n")
    done = ottla_at(broker, "consume", "shown", "-o", "0", "-n", "1", "--value-format", "json", "--json")
    assert json.loads(done.stdout)["value"]["half"] == "\ud800"
    table = '\ufeffid,city,n\r\n7,"Aš, ""B""",1\r\n08,NULL,true\r\n\r\n'
    shown_at(broker, "produce", "flat", "--format", "csv", "--key-column", "id", "-Z", "NULL", stdin=table)
    city = 'Aš, "B"'
    assert values(broker, "flat") == [
        ("7", {"id": "7", "city": city, "n": "1"}),
        ("08", {"id": "08", "city": None, "n": "true"}),
    ]
    shown_at(broker, "produce", "typed", "--format", "csv", "--typed", "-k", "k", stdin=table)
    assert values(broker, "typed") == [
        ("k", {"id": 7, "city": city, "n": 1}),
        ("k", {"id": "08", "city": "NULL", "n": True}),
    ]


def test_parquet_makes_the_same_records_again(broker: Broker, tmp_path: Path) -> None:
    path = str(tmp_path / "records.parquet")
    done = ottla_at(broker, "consume", "source", "-o", "beginning", "-e", "--to", path)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"ottla consume: 4 records written to {path}\n")
    table = parquet.read_table(path)
    assert table["value"].to_pylist() == [b'a "quoted",\nvalue', b"", None, b"\x00\xff\r"]
    assert table["headers"].to_pylist()[0][0] == {"key": "h", "value": b"\xff"}
    assert table.schema.field("timestamp").type == pyarrow.timestamp("ms", "UTC")
    shown_at(broker, "produce", "parquet", "--format", "parquet", path)
    assert records(broker, "parquet") == records(broker, "source")
    text = str(tmp_path / "text.parquet")
    shown_at(
        broker, "consume", "shown", "-o", "0", "-e", "--to", text, "--value-format", "text", "--filter", "key == 'k'"
    )
    assert parquet.read_table(text)["value"].to_pylist()[1] == '{"n": 2.5, "city": null}'


def test_records_before_one_that_is_not_text_are_in_the_file(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    done = ottla_at(broker, "consume", "source", "-o", "0", "-e", "--to", str(path), "--value-format", "text")
    assert (done.exit_code, f"ottla consume: 3 records written to {path}\n" in done.stderr) == (2, True)
    assert parquet.read_table(path)["offset"].to_pylist() == [0, 1, 2]


def test_a_full_disk_leaves_no_file(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_writer: object, _table: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "full.parquet"
    monkeypatch.setattr(parquet.ParquetWriter, "write_table", full)
    done = ottla_at(broker, "consume", "source", "-o", "0", "-e", "--to", str(path))
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert f"--to {path}: No space left on device" in done.stderr
    assert f"ottla consume: {path} was not written\n" in done.stderr


@pytest.mark.parametrize(
    ("key", "text"),
    [(7.0, "7"), (0.5, "0.5"), ({"a": ["é"]}, '{"a":["é"]}'), ([True], "[true]"), (True, "true")],
)
def test_keys_of_columns(broker: Broker, tmp_path: Path, key: Any, text: str) -> None:
    parquet.write_table(pyarrow.table({"value": ["v"], "key": [key]}), tmp_path / "x.parquet")
    shown_at(broker, "produce", "headers", "--format", "parquet", str(tmp_path / "x.parquet"))
    done = shown_at(broker, "consume", "headers", "-o", "-1", "-e", "-f", "%k")
    assert done.decode() == text


@pytest.mark.parametrize(
    ("type_of", "headers"),
    [
        (pyarrow.map_(pyarrow.string(), pyarrow.binary()), [("h", b"\xff"), ("n", None)]),
        (pyarrow.struct([("h", pyarrow.binary()), ("n", pyarrow.string())]), {"h": b"\xff", "n": None}),
    ],
    ids=["map", "struct"],
)
def test_headers_of_other_shapes(broker: Broker, tmp_path: Path, type_of: Any, headers: Any) -> None:
    parquet.write_table(
        pyarrow.table({"value": ["v"], "headers": pyarrow.array([headers], type_of)}), tmp_path / "x.parquet"
    )
    shown_at(broker, "produce", "headers", "--format", "parquet", str(tmp_path / "x.parquet"))
    assert records(broker, "headers")[-1]["headers"] == [{"key": "h", "value_hex": "ff"}, {"key": "n", "value": None}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": ["v"], "headers": [["h=1"]]}, "row 1: headers are a map, or a list of structs of key and value, no"),
        ({"value": ["v"], "headers": [[{"key": "a", "val": b"b"}]]}, "row 1: headers are a map, or a list of structs"),
        ({"value": ["v"], "headers": [[{"key": "a", "value": [1]}]]}, "the value of a header is text or bytes, not ["),
        ({"n": pyarrow.array([2**62], pyarrow.timestamp("ms"))}, "column n has a value that cannot be read: "),
    ],
)
def test_a_parquet_file_is_refused(broker: Broker, tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    done = ottla_at(broker, "produce", "refused", "--format", "parquet", str(tmp_path / "x.parquet"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_tables_are_values(broker: Broker, tmp_path: Path) -> None:
    path = str(tmp_path / "table.parquet")
    when = pyarrow.array([1_000_000, 2_000_000], pyarrow.timestamp("us"))
    parquet.write_table(pyarrow.table({"id": [1, 2], "city": ["Oslo", None], "at": when, "timestamp": when}), path)
    shown_at(broker, "produce", "tables", "--format", "parquet", path, "--key-column", "id")
    assert values(broker, "tables") == [
        ("1", {"id": 1, "city": "Oslo", "at": "1970-01-01T00:00:01"}),
        ("2", {"id": 2, "city": None, "at": "1970-01-01T00:00:02"}),
    ]
    assert [each["timestamp"] for each in records(broker, "tables")] == [1_000, 2_000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key,value\na,b\nc\n", "line 3: 1 fields, where the first row names 2 columns; written: 1 record"),
        ('key,value\na,b\nc,"d\n', "line 3 is not CSV: unexpected end of data; written: 1 record"),
        ("key,value,city\n", "line 1: value and city are both there; the columns are key, value, city."),
        ("city,offset\n", "line 1: column offset would be lost: it is not a field of the value"),
        ("city,partition\n", "leave it out, or --keep-partition writes to it"),
        ("key,headers\n", "line 1: no column is the value, or a field of it; the columns are key, headers"),
        ("a,a\n", "line 1: each column has a name of its own"),
        ("value,timestamp\nx,now\n", "line 2: timestamp is a whole number of milliseconds since 1970, not 'now'"),
        ("value,headers\nx,{\n", "line 2: not JSON: "),
    ],
)
def test_a_row_that_cannot_be_a_record_is_named(broker: Broker, text: str, message: str) -> None:
    done = ottla_at(broker, "produce", "refused", "--format", "csv", stdin=text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_key_beside_the_column_that_is_the_key(broker: Broker) -> None:
    done = ottla_at(broker, "produce", "refused", "--format", "csv", "--key-column", "id", stdin="id,key\n1,2\n")
    assert (done.exit_code, "column key would be lost: " in done.stderr, "the key is id" in done.stderr) == (2, 1, 1)


def test_partition_is_that_of_rows_which_say_none(broker: Broker) -> None:
    options = ("--format", "csv", "--keep-partition", "-p", "1", "--json")
    written = shown_at(broker, "produce", "two", *options, stdin="value,partition\nx,0\nx,\n")
    assert [(each["partition"], each["records"]) for each in json.loads(written)["partitions"]] == [(0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("consume source --format csv --json", "--format csv has columns; leave --json"),
        ("consume source --to NEW.parquet --columns key", "--to writes all columns; leave --columns out"),
        ("consume source --columns key", "--columns goes with --format csv"),
        ("consume source --format csv --columns key,key", "expected names with commas between, each once"),
        ("consume source --to x.csv", "--to x.csv: the name of a Parquet file ends with .parquet; `> x.csv` takes"),
        ("consume source --to THERE.parquet", "THERE.parquet: it is there already"),
        ("consume source --to /nowhere/x.parquet", "the directory /nowhere does not exist"),
        ("consume source --to NEW.parquet -g g", "leave --group or --to out"),
        ("consume source --to NEW.parquet --value-format hex", "--to writes keys and values as bytes"),
        ("consume source -o 0 -e --to NEW.parquet --value-format text", "source-0 offset 3: its value is not UTF-8"),
        ("consume nope -e --to NONE.parquet", "topic nope does not exist"),
        ("produce source --format parquet", "--format parquet reads files, not standard input"),
        ("produce source --format parquet THERE.parquet", "THERE.parquet: not a Parquet file: "),
        ("produce source --format parquet NONE.parquet", "NONE.parquet: "),
        ("produce source --key-column id", "--key-column goes with --format csv and parquet"),
        ("produce source --typed --format parquet", "--typed goes with --format csv"),
    ],
)
def test_mistakes(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("THERE.parquet").write_text("no")
    done = ottla_at(broker, *arguments.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("NONE.parquet").exists()
