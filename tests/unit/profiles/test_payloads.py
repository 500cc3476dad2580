"""Records of the profiles: JSON of a fixed length, their ids found again, made fast."""

from __future__ import annotations

import json

import pyarrow
import pytest

from ottla.profiles.payloads import RecordMaker, least_record_bytes, read_ids
from ottla.profiles.workload import CLICKS, PAYMENTS, ProfileError, Workload

pytestmark = pytest.mark.spec("D6")

NOW_MS = 1_764_000_000_123


def test_a_payment_is_json_with_its_account_as_key() -> None:
    chunk = RecordMaker(PAYMENTS, 12, 200).chunk(123_456_789_012, 3, NOW_MS)
    for number, row in enumerate(chunk.to_pylist()):
        assert len(row["value"]) == 200
        payment = json.loads(row["value"])
        assert list(payment) == ["id", "at", "account", "to", "amount", "text"]
        assert payment["id"] == f"0012{123_456_789_012 + number:012}"
        assert payment["at"] == NOW_MS
        assert payment["account"].encode() == row["key"]
        assert 0 <= int(payment["amount"]) < 1_000_000


def test_a_click_is_json_without_a_key() -> None:
    chunk = RecordMaker(CLICKS, 0, 150).chunk(9_999, 2, NOW_MS)
    assert chunk.schema.names == ["value"]
    first, second = (json.loads(value.as_py()) for value in chunk.column("value"))
    assert list(first) == ["id", "at", "user", "page", "text"]
    assert (first["id"], second["id"]) == ("0000000000009999", "0000000000010000")
    assert first["page"].startswith("/")


@pytest.mark.parametrize("workload", [PAYMENTS, CLICKS])
def test_the_smallest_record(workload: Workload) -> None:
    least = least_record_bytes(workload)
    (value,) = RecordMaker(workload, 0, least).chunk(0, 1, NOW_MS).column("value").to_pylist()
    assert len(value) == least
    assert json.loads(value)["text"] == ""
    with pytest.raises(ProfileError, match=f"has {least} bytes at least, not {least - 1}"):
        RecordMaker(workload, 0, least - 1)


def test_large_records_come_in_small_chunks() -> None:
    assert RecordMaker(CLICKS, 0, 400_000).rows == 10


@pytest.mark.parametrize("first", [0, 99_999_990, 999_999_999_990])
def test_ids_are_found_again(first: int) -> None:
    chunk = RecordMaker(CLICKS, 63, 120).chunk(first, 10, NOW_MS)
    producers, sequences, strange = read_ids(chunk.column("value").cast(pyarrow.binary()), 120)
    assert producers.tolist() == [63] * 10
    assert sequences.tolist() == list(range(first, first + 10))
    assert strange == 0


@pytest.mark.parametrize("byte", [b"/", b":", b"a", b" ", b"\xb5", b"\x00"])
def test_an_id_has_digits_only(byte: bytes) -> None:
    value = RecordMaker(CLICKS, 0, 120).chunk(0, 1, NOW_MS).column("value")[0].as_py()
    for at in range(7, 23):
        changed = value[:at] + byte + value[at + 1 :]
        producers, _, strange = read_ids(pyarrow.array([changed, value], pyarrow.binary()), 120)
        assert (producers.tolist(), strange) == ([0], 1), at


def test_accounts_differ() -> None:
    maker = RecordMaker(PAYMENTS, 0, 150, chunk_rows=1_000)
    keys = {key for _ in range(2) for key in maker.chunk(0, 1_000, 0).column("key").to_pylist()}
    assert len(keys) > 1_900


def test_the_generator_says_how_fast_it_is() -> None:
    assert RecordMaker(CLICKS, 0, 200).alone_per_s(0.01) > 0
