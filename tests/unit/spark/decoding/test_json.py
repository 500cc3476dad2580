"""JSON to typed columns: whole batches, bad documents among them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow
import pytest

from ottla.spark.decoding import decoder, json_batches, parse_decoding_options
from support.json_documents import FLAT_DDL, Documents
from support.plain_columns import plain


def decode(ddl: str, documents: Sequence[bytes | None], **more: str) -> list[dict[str, Any]]:
    made = decoder(parse_decoding_options({"valueFormat": "json", "valueSchema": ddl, **more}))
    columns = made.decode(pyarrow.array(documents, pyarrow.binary()))
    table = pyarrow.table(columns, schema=made.fields)
    assert table.num_rows == len(documents)
    table.validate(full=True)
    return list(table.to_pylist())


def good(ddl: str, document: bytes) -> Any:
    """The only column of one good document."""
    (row,) = decode(ddl, [document])
    assert row["_bad_reason"] is None
    assert row["_bad_value"] is None
    return next(iter(row.values()))


def test_a_bad_record_never_touches_its_neighbours() -> None:
    documents = [b'{"id":%d,"name":"n%d"}' % (number, number) for number in range(1_000)]
    bad = {
        0: b"{",
        17: b'{"id":17',
        18: b'{"id":18}{"id":18}x',
        500: b"",
        501: b'[{"id":1}]',
        999: b'{"id":"x","name":"kept"}',
    }
    for place, document in bad.items():
        documents[place] = document
    rows = decode("id BIGINT, name STRING", documents)
    for number, row in enumerate(rows):
        if number not in bad:
            assert row == {"id": number, "name": f"n{number}", "_bad_value": None, "_bad_reason": None}
    assert [rows[place]["_bad_value"] for place in (0, 17, 501, 999)] == [bad[place] for place in (0, 17, 501, 999)]
    assert rows[0]["_bad_reason"] == "not JSON: it ends too early"
    assert rows[999]["name"] == "kept"
    assert rows[999]["_bad_reason"] == 'column id: int64 is expected, not "x"'
    # As from_json has it: what follows the first object is not looked at, and nothing is not bad.
    assert rows[18]["id"] == 18
    assert rows[500] == dict.fromkeys(("id", "name", "_bad_value", "_bad_reason"))


def test_records_that_would_make_up_for_each_other_in_one_text() -> None:
    """Two objects in one value, and half of one in another: as many rows as values, but not of each one."""
    rows = decode("id BIGINT", [b'{"id":1}{"id":2}', b"", b'{"id":3', b"}", b'{"id":4},{"id":5}', b'{"id":6}'])
    assert [row["id"] for row in rows] == [1, None, None, None, 4, 6]


def test_a_text_does_not_go_on_in_the_next_record() -> None:
    """Two objects in one value make up for a text that begins in one value and ends in the next."""
    documents = [b'{"name":"a"}{"name":"b"}', b'{"name":"good"}', b'{"name":"}', b'{"}']
    assert [row["name"] for row in decode("name STRING", documents)] == ["a", "good", None, None]


def test_tombstones_are_null_and_not_bad() -> None:
    rows = decode("id BIGINT, s STRUCT<x: INT>", [None, b'{"id":1}', None, b'{"id":', None])
    assert [row["id"] for row in rows] == [None, 1, None, None, None]
    assert [row["_bad_value"] for row in rows] == [None, None, None, b'{"id":', None]
    assert decode("id BIGINT", []) == []
    assert decode("id BIGINT", [None])[0]["id"] is None


def test_all_columns_as_one_struct() -> None:
    rows = decode("key STRING", [b'{"key":"k"}', None, b"x"], valueColumn="value")
    assert [row["value"] for row in rows] == [{"key": "k"}, None, {"key": None}]


def test_lines_and_spaces_between_tokens() -> None:
    rows = decode("id BIGINT", [b'{\n "id" : 1\r\n}', b' {"id":2}\n', b'{"id":3}'])
    assert [row["id"] for row in rows] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("TINYINT", b"128", -128),  # JsonParser.getByteValue
        ("DECIMAL(6,2)", b"1.555", Decimal("1.56")),
        ("DECIMAL(6,2)", b'"1,234.5"', Decimal("1234.50")),
        ("STRING", b"1e2", "100.0"),
        ("STRING", b'{ "a" : [1, 2.50, "\\u00e9"] }', '{"a":[1,2.5,"é"]}'),
        ("STRING", b"-12345678901234567890", "-12345678901234567890"),
        ("STRING", b"'single'", "single"),
        ("DOUBLE", b'"-INF"', float("-inf")),
        ("DOUBLE", b"1e400", float("inf")),
        ("BINARY", b'"AQID"', b"\x01\x02\x03"),
        ("MAP<STRING, INT>", b'{"a":1,"b":null,"a":2}', [("a", 1), ("b", None), ("a", 2)]),
        ("ARRAY<STRUCT<d: DECIMAL(4,1)>>", b'[{"d":1},null,{}]', [{"d": Decimal("1.0")}, None, {"d": None}]),
    ],
)
def test_values_that_spark_takes(kind: str, text: bytes, value: object) -> None:
    assert good(f"x {kind}", b'{"x":%s}' % text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT", b"1.0"), ("INT", b"2147483648"), ("INT", b'"1"'), ("INT", b'""'), ("BOOLEAN", b"1"),
        ("DOUBLE", b'"1.5"'), ("DECIMAL(6,2)", b"12345"), ("DATE", b'"2023-02-29"'), ("TIMESTAMP", b'"12:34:56"'),
        ("BINARY", b'"?"'), ("STRUCT<x: INT>", b"[]"), ("ARRAY<INT>", b"{}"), ("ARRAY<INT>", b'[1,"x"]'),
        ("MAP<STRING, INT>", b'{"a":"x"}'),
    ],
)  # fmt: skip
def test_values_of_another_type_are_null_and_the_rest_of_the_record_stays(kind: str, text: bytes) -> None:
    (row,) = decode(f"x {kind}, other STRING", [b'{"x":%s,"other":"kept"}' % text])
    assert (row["x"], row["other"]) == (None, "kept")
    assert row["_bad_reason"].startswith("column x: ")


def test_deep_documents_end_neither_the_process_nor_the_batch() -> None:
    deep = b'{"extra":' + b"[" * 100_000 + b"]" * 100_000 + b',"id":%s}'
    rows = decode("id BIGINT", [deep % b"1", deep % b'"x"', b'{"id":2}'])
    assert [row["id"] for row in rows] == [1, None, 2]
    assert decode("id STRING", [b'{"id":' + b"[" * 50_000])[0]["_bad_reason"] == "not JSON: it ends too early"


@pytest.mark.slow
def test_a_document_gives_the_same_in_a_batch_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyarrow's reader takes is what is read one by one, too: a row does not depend on its neighbours."""
    options = {"valueFormat": "json", "valueSchema": FLAT_DDL, "valueTimeZone": "America/New_York"}
    made = decoder(parse_decoding_options(options))
    documents = pyarrow.array(Documents(3).take(3_000), pyarrow.binary())
    together = [plain(column) for column in made.decode(documents)]
    alone = [[plain(column)[0] for column in made.decode(documents.slice(place, 1))] for place in range(500)]
    assert alone == [list(row) for row in zip(*together, strict=True)][:500]
    monkeypatch.setattr(json_batches.JsonBatches, "_batch", _unreadable)
    assert [plain(column) for column in made.decode(documents)] == together


@pytest.mark.slow
def test_all_readers_of_batches_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of documents that both take: the compiled reader or, without a compiler, its source, and pyarrow's."""
    monkeypatch.setattr(json_batches, "COMPILED", True)
    made = decoder(parse_decoding_options({"valueFormat": "json", "valueSchema": FLAT_DDL}))
    reader = json_batches.JsonBatches(made.fields.remove(len(made.fields) - 1).remove(len(made.fields) - 2), "UTC")
    both = 0
    for document in Documents(41).take(1_500):
        value = pyarrow.array([document], pyarrow.binary())
        try:
            wanted = reader._of_pyarrow(value)
            found = reader._of_compiled(value)
        except json_batches.UnreadableError:
            continue
        if found is not None:
            both += 1
            assert [plain(column) for column in found] == [plain(column) for column in wanted], document
    assert both > 300


def _unreadable(*_: object) -> None:
    raise json_batches.UnreadableError


def test_a_batch_of_bad_records_is_read_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    batch = json_batches.JsonBatches._batch

    def counted(self: json_batches.JsonBatches, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        rows.append(len(values))
        return batch(self, values)

    monkeypatch.setattr(json_batches.JsonBatches, "_batch", counted)
    decode("id BIGINT", [b'{"id":"x"}'] * 4_096)
    assert sum(rows) == 4_096 * 9  # 4096, 2048, … 16


@pytest.mark.spec("D1")
@pytest.mark.parametrize("ddl", ["id BIGINT, s STRING", "id BIGINT, s STRING, m MAP<STRING, INT>"])
@pytest.mark.parametrize(
    ("document", "is_good"),
    [
        (b'{"id":2,"o":' + b"[" * 10_000 + b"]" * 10_000 + b"}", True),
        (b'{"id":2,"s":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}", True),
        (b'{"id":2,"m":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}", None),
        (b'{"id":2,"o":' + b"[" * 10_000 + b"}", False),
        (b'{"id":2,"s":"' + b"x" * (32 << 20) + b'"}', True),
        (b'{"id":"2","s":"' + b"x" * (32 << 20) + b'"}', False),
        (b'{"id":' + b"1" * (4 << 20) + b"}", False),
        (b"x" * (4 << 20), False),
    ],
    ids=["array", "object", "map", "unclosed", "32 MiB", "32 MiB, bad", "digits", "text"],
)
def test_deep_and_huge_documents_leave_their_neighbours_alone(ddl: str, document: bytes, is_good: bool | None) -> None:
    neighbour = b'{"id":1,"s":"a"}'
    rows = decode(ddl, [neighbour] * 20 + [document] + [neighbour] * 20)
    others = rows[:20] + rows[21:]
    assert all((row["id"], row["s"], row["_bad_reason"]) == (1, "a", None) for row in others)
    if is_good is not None:
        assert (rows[20]["_bad_reason"] is None) == is_good
        assert rows[20]["id"] == (2 if is_good else None)


def test_a_long_text_in_single_quotes_takes_little_memory() -> None:
    size = 1 << 20
    tracemalloc.start()
    try:
        (row,) = decode("s STRING", [b"{'s':'" + b"x\\'" * size + b"'}"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert row["s"] == "x'" * size
    assert peak < 40 * size


def test_good_documents_are_decoded_without_pandas() -> None:
    """Its import costs each of Spark's workers 30 MB and 0.2 s."""
    program = """
        import struct, sys
        import pyarrow
        from ottla.spark.decoding import decoder, parse_decoding_options

        document = b'{"id":1,"at":"2024-01-01T00:00:00Z","price":1.50,"tags":["a"],"place":{"x":1},"day":"2024-01-01"}'
        ddl = "id BIGINT, at TIMESTAMP, price DECIMAL(6,2), tags ARRAY<STRING>, place STRUCT<x:INT>, day DATE"
        ends = struct.pack("=101i", *range(0, 101 * len(document), len(document)))
        buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(100 * document)]
        values = pyarrow.Array.from_buffers(pyarrow.binary(), 100, buffers)
        columns = decoder(parse_decoding_options({"valueFormat": "json", "valueSchema": ddl})).decode(values)
        print(columns[-1].null_count, columns[2][99], "pandas" in sys.modules)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.stdout, run.stderr) == ("100 1.50 False\n", "")
