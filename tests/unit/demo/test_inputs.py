"""The user's own file: what is read from it, and how bad input is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.demo import inputs
from ottla.demo.inputs import InputError, parse_time, read_input

CSV = """\
when,who,amount,note
2013-01-01T10:00:00Z,anna,5,"a, b"
2013-01-01T09:00:00Z,ben,,plain
2013-01-01T11:00:00+01:00,anna,2.5,
"""


def _write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_becomes_json_events_in_the_order_of_time(tmp_path: Path) -> None:
    feed = read_input(_write(tmp_path, "my orders.csv", CSV), "who", "when")
    assert feed.name == "my-orders"
    hours = [event.time_ms // 3_600_000 % 24 for event in feed.events]
    assert hours == [9, 10, 10]
    assert [event.key for event in feed.events] == [b"ben", b"anna", b"anna"]
    assert json.loads(feed.events[0].value) == {
        "when": "2013-01-01T09:00:00Z",
        "who": "ben",
        "amount": None,
        "note": "plain",
    }
    assert json.loads(feed.events[1].value)["amount"] == 5
    assert feed.fields == {"when": "STRING", "who": "STRING", "amount": "DOUBLE", "note": "STRING"}
    assert feed.place_field == "who"
    assert {event.place for event in feed.events} == {"anna", "ben"}


def test_ndjson_lines_are_sent_as_they_are(tmp_path: Path) -> None:
    lines = ['{"t": 1357017300, "k": 7, "x": {"a": [1]}}', "", '  {"t": 1357017301.5, "k": 8, "ok": true}  ']
    feed = read_input(_write(tmp_path, "e.ndjson", "\n".join(lines)), "k", "t")
    assert [event.value.decode() for event in feed.events] == [lines[0], lines[2].strip()]
    assert [event.time_ms for event in feed.events] == [1_357_017_300_000, 1_357_017_301_500]
    assert [event.key for event in feed.events] == [b"7", b"8"]
    assert feed.fields == {"t": "DOUBLE", "k": "BIGINT", "x": "STRING", "ok": "BOOLEAN"}
    assert feed.place_field is None, "numbers are no folders"


def test_a_missing_key_is_no_key(tmp_path: Path) -> None:
    feed = read_input(_write(tmp_path, "e.ndjson", '{"t": 1, "k": null}\n{"t": 2}'), "k", "t")
    assert [event.key for event in feed.events] == [None, None]
    feed = read_input(_write(tmp_path, "e.csv", "t,k\n1,\n"), "k", "t")
    assert feed.events[0].key is None


def test_numbers_keep_what_a_number_would_lose(tmp_path: Path) -> None:
    feed = read_input(
        _write(tmp_path, "e.csv", "t,k,zip,big,mixed\n1,a,00501,12345678901234567890,1\n2,b,10001,1,x\n"), "k", "t"
    )
    assert feed.fields == {
        "t": "BIGINT",
        "k": "STRING",
        "zip": "STRING",
        "big": "DOUBLE",
        "mixed": "STRING",
    }
    assert json.loads(feed.events[0].value)["zip"] == "00501"


def test_names_that_the_archive_needs(tmp_path: Path) -> None:
    feed = read_input(_write(tmp_path, "e.csv", "Date,k\n2013-01-01,a\n"), "k", "Date")
    assert feed.date_column == "event_date"
    feed = read_input(_write(tmp_path, "f.csv", "date,event_date,Record_date\n1,a,1\n"), "event_date", "date")
    assert feed.date_column == "date_0"
    assert feed.partition_by == ("date_0", "event_date")


def test_many_keys_are_no_directories(tmp_path: Path) -> None:
    rows = "".join(f"{number},k{number}\n" for number in range(inputs.MOST_PLACES + 1))
    assert read_input(_write(tmp_path, "e.csv", "t,k\n" + rows), "k", "t").place_field is None
    rows = "".join(f"{number * 86_400},k{number % 2}\n" for number in range(inputs.MOST_FOLDERS // 2 + 1))
    assert read_input(_write(tmp_path, "e.csv", "t,k\n" + rows), "k", "t").partition_by == ("k",), "too many days"


def test_a_column_without_a_name_is_not_in_the_archive(tmp_path: Path) -> None:
    feed = read_input(_write(tmp_path, "e.csv", ",t,k\n0,1,a\n"), "k", "t")
    assert feed.fields == {"t": "BIGINT", "k": "STRING"}
    assert json.loads(feed.events[0].value) == {"": 0, "t": 1, "k": "a"}


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("e.txt", "x", "unknown kind of file; give a .csv, .ndjson or .jsonl"),
        ("e.csv", "", "has no column 'k' for --key; it has none"),
        ("e.csv", "t,k\n", "holds no events"),
        ("e.ndjson", "\n\n", "holds no events"),
        ("e.csv", "t,kk\n1,2\n", "has no column 'k' for --key (did you mean kk?); it has t, kk"),
        ("e.csv", "when,k\n1,2\n", "has no column 't' for --time; it has when, k"),
        ("e.ndjson", '{"t": 1}', "has no column 'k' for --key; it has t"),
        ("e.csv", "t,k,k\n1,2,3\n", "names columns twice: k"),
        ("e.csv", "t,k\n1,a\n2\n", "line 3: 1 values, the header names 2"),
        ("e.csv", 't,k\n1,"a\nb"\nsoon,c\n', "line 4: 't' is 'soon', which is not a time"),
        ("e.csv", "t,k\n,c\n", "line 2: 't' is ''"),
        ("e.csv", 't,k\n1,"a"b\n', "line 2: "),
        ("e.ndjson", '{"t": 1, "k": 1}\n{"k": 2}', "line 2: 't' is None"),
        ("e.ndjson", '{"t": 1, "k": 1}\n{"t": -5, "k": 2}', "line 2: 't' is -5, which is not a time from 1970 on"),
        ("e.ndjson", '{"t": 1, "k": 1}\n{"t": ', "line 2: not JSON"),
        ("e.ndjson", "[1]", "line 1: not a JSON object"),
        ("e.ndjson", '{"t": 1, "k": [2]}', "line 1: 'k' is not a plain value"),
    ],
)
def test_bad_input_is_refused_where_it_is(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    with pytest.raises(InputError) as refused:
        read_input(_write(tmp_path, name, text), "k", "t")
    assert complaint in str(refused.value)
    assert name in str(refused.value)


def test_files_that_are_not_there_not_text_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"none\.csv: no such file"):
        read_input(tmp_path / "none.csv", "k", "t")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="cannot read"):
        read_input(tmp_path / "folder.csv", "k", "t")
    (tmp_path / "latin.csv").write_bytes(b"t,k\n1,a\n2,\xe4\n")
    with pytest.raises(InputError, match="line 3: not UTF-8 text"):
        read_input(tmp_path / "latin.csv", "k", "t")
    monkeypatch.setattr(inputs, "MAX_INPUT_BYTES", 10)
    with pytest.raises(InputError, match="the demo takes 10; give a part of it"):
        read_input(_write(tmp_path, "large.csv", CSV), "who", "when")
    monkeypatch.setattr(inputs, "MAX_INPUT_BYTES", 10_000)
    monkeypatch.setattr(inputs, "MAX_LINE_BYTES", 20)
    with pytest.raises(InputError, match=r"line 2: .* bytes are more than a record takes"):
        read_input(_write(tmp_path, "large.csv", CSV), "who", "when")


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("2013-01-01T05:15:00Z", 1_357_017_300_000),
        ("2013-01-01 05:15:00", 1_357_017_300_000),
        ("2013-01-01T00:15:00.250-05:00", 1_357_017_300_250),
        ("2013-01-01", 1_356_998_400_000),
        ("1357017300", 1_357_017_300_000),
        (1_357_017_300, 1_357_017_300_000),
        (1_357_017_300.25, 1_357_017_300_250),
        ("1357017300250", 1_357_017_300_250),
        (1_357_017_300_250_999, 1_357_017_300_250),
        (1_357_017_300_250_999_999, 1_357_017_300_250),
        (0, 0),
        ("1969-12-31T23:59:59Z", None),
        (-1, None),
        ("", None),
        ("tomorrow", None),
        (True, None),
        (None, None),
        (float("nan"), None),
        ([], None),
        ("9" * 400, None),
        ("9" * 5_000, None),
        (10**400, None),
    ],
)
def test_times(given: object, milliseconds: int | None) -> None:
    assert parse_time(given) == milliseconds
