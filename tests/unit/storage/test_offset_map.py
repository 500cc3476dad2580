from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from ottla.records import _keys, keys
from ottla.records.errors import BatchError
from ottla.records.record import Record, encode_records
from ottla.storage.offset_map import PLACE_BYTES, DictMap, OffsetMap, TableMap

SECRET = (0x0706050403020100, 0x0F0E0D0C0B0A0908)


@pytest.fixture(autouse=True, params=["as built", "in plain Python"])
def keys_of_tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables work with compiled code where it is built; both kinds of code are tested."""
    if request.param == "in plain Python":
        for name in ("put_keys", "sieve"):
            monkeypatch.setattr(keys, name, getattr(_keys, name))


def table(memory_bytes: int = 1 << 20, most_keys: int = 10_000) -> OffsetMap:
    return TableMap(memory_bytes, 0.9, most_keys, SECRET)


def dictionary(memory_bytes: int = 1 << 20, most_keys: int = 10_000) -> OffsetMap:
    return DictMap(memory_bytes, 0.9)


BOTH = pytest.mark.parametrize("make", [table, dictionary])


def encoded(*pairs: tuple[bytes | None, bytes | None], deltas: list[int] | None = None) -> bytes:
    records = [Record(0, 1000 + number, key, value, (("h", b"x"),)) for number, (key, value) in enumerate(pairs)]
    return encode_records(records, deltas or list(range(len(records))), 1000)


def stretches_of(payload: bytes, found: object) -> bytes:
    bounds = iter(found.stretches)  # type: ignore[attr-defined]
    return b"".join(payload[start:end] for start, end in zip(bounds, bounds, strict=True))


@BOTH
def test_the_newest_of_each_key_stays(make: Callable[..., OffsetMap]) -> None:
    offsets = make()
    payload = encoded((b"a", b"1"), (b"b", b"1"), (b"a", None), (None, b"none"), (b"k" * 100, b"1"), (b"", b"empty"))
    offsets.put(payload, 6, 10, 0)
    offsets.put(encoded((b"b", b"2")), 1, 20, 0)
    offsets.latest_offset = 20
    assert len(offsets) == 4
    found = offsets.sieve(payload, 6, 10, expired=False)
    assert list(found.stays) == [0, 0, 1, 0, 1, 1]
    assert (found.retained, found.tombstones, found.largest_delta) == (3, 1, 5)
    expired = offsets.sieve(payload, 6, 10, expired=True)
    assert list(expired.stays) == [0, 0, 0, 0, 1, 1]
    assert (expired.retained, expired.tombstones) == (2, 0)
    kept = encoded((b"k" * 100, b"1"), (b"", b"empty"), deltas=[4, 5])
    assert len(stretches_of(payload, expired)) == len(kept)
    # What the map does not know, and what lies above it, stays.
    unknown = encoded((b"x", b"1"), (None, None), (b"b", b"3"))
    assert list(offsets.sieve(unknown, 3, 0, expired=True).stays) == [1, 0, 0]
    assert list(offsets.sieve(unknown, 3, 21, expired=True).stays) == [1, 1, 1]


@BOTH
def test_records_below_the_start_are_not_taken(make: Callable[..., OffsetMap]) -> None:
    offsets = make()
    offsets.put(encoded((b"a", b"1"), (b"b", b"1"), (b"c", b"1")), 3, 10, 12)
    assert len(offsets) == 1


def test_both_kinds_agree() -> None:
    chance = random.Random(3)
    first, second = table(), dictionary()
    batches = []
    for number in range(60):
        pairs = [
            (
                None if chance.random() < 0.05 else b"%d" % chance.randrange(80) * chance.choice([1, 1, 9, 30]),
                None if chance.random() < 0.2 else b"v" * chance.randrange(200),
            )
            for _ in range(chance.randrange(1, 30))
        ]
        gaps = sorted(chance.sample(range(100), len(pairs)))
        batches.append((encoded(*pairs, deltas=gaps), len(pairs), number * 100))
    for payload, count, base in batches[20:50]:
        for one in (first, second):
            one.put(payload, count, base, 2050)
    assert len(first) == len(second) > 100
    first.latest_offset = second.latest_offset = 4800
    for payload, count, base in batches:
        for expired in (False, True):
            left, right = (one.sieve(payload, count, base, expired) for one in (first, second))
            assert list(left.stays) == list(right.stays)
            assert left[:2] == right[:2]
            assert left.retained == 0 or left.largest_delta == right.largest_delta
            assert stretches_of(payload, left) == stretches_of(payload, right)


@pytest.mark.slow
def test_a_dictionary_takes_as_much_memory_as_it_says() -> None:
    """Just after CPython's dict has grown, with the new table beside the old one."""
    count, per_batch = 11_000, 1_000
    keys_of = [[b"%016d" % (start + n) for n in range(per_batch)] for start in range(0, count, per_batch)]
    batches = [encoded(*[(key, b"") for key in each]) for each in keys_of]
    offsets = DictMap(1 << 30)
    tracemalloc.start()
    try:
        for number, each in enumerate(batches):
            offsets.put(each, per_batch, number * per_batch, 0)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 * offsets.memory_bytes < most_bytes < 1.1 * offsets.memory_bytes


@BOTH
def test_records_whose_keys_go_beyond_their_batch_are_malformed(make: Callable[..., OffsetMap]) -> None:
    # Length 50, attributes, deltas, and a key of 45 bytes of which only three are there.
    payload = bytes([100, 0, 0, 0, 90]) + b"key"
    offsets = make()
    offsets.put(encoded((b"a", b"1")), 1, 0, 0)
    offsets.latest_offset = 100
    for use in (lambda: offsets.put(payload, 1, 10, 0), lambda: offsets.sieve(payload, 1, 10, expired=False)):
        with pytest.raises(BatchError):
            use()


@BOTH
def test_memory_is_bounded(make: Callable[..., OffsetMap]) -> None:
    offsets = make(100_000, 1 << 30)
    count = 0
    while offsets.has_room(100):
        offsets.put(encoded(*[(b"%d" % (count + n), b"x") for n in range(100)]), 100, count, 0)
        count += 100
        assert len(offsets) == count
    assert 300 <= count <= 100_000 // PLACE_BYTES
    assert 40_000 < offsets.memory_bytes <= 100_000
    # An empty map takes any batch, and sieves it.
    small = make(10, 4)
    assert small.has_room(500)
    payload = encoded(*[(b"%d" % (n % 250), b"x") for n in range(500)])
    small.put(payload, 500, 0, 0)
    small.latest_offset = 499
    assert len(small) == 250
    assert small.sieve(payload, 500, 0, expired=False).retained == 250
    assert not small.has_room(1000)


@BOTH
@pytest.mark.parametrize("seed", range(40))
def test_malformed_records_are_refused(make: Callable[..., OffsetMap], seed: int) -> None:
    chance = random.Random(seed)
    payload = bytearray(encoded((b"key", b"value"), (b"other", None), (None, b"x" * 200)))
    offsets = make()
    for _ in range(30):
        damaged = bytearray(payload)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        cut = bytes(damaged[: chance.choice([len(damaged), chance.randrange(len(damaged))])])
        count = chance.choice([3, 2, 4, 1000])
        try:
            offsets.put(cut, count, 0, 0)
            offsets.sieve(cut, count, 0, expired=False)
        except BatchError:
            continue
        assert count <= 3, "more records than there are cannot fit"


@pytest.mark.parametrize("digest", [_keys.digest, keys.digest])
def test_the_digest_is_siphash(digest: Callable[[bytes, int, int], tuple[int, int]]) -> None:
    # The first two vectors of the reference implementation (SipHash-2-4, 128 bits).
    expected = ["a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45"]
    for length, digits in enumerate(expected):
        left, right = digest(bytes(range(length)), *SECRET)
        assert (left.to_bytes(8, "little") + right.to_bytes(8, "little")).hex() == digits
    found = {digest(bytes(range(length)), *SECRET) for length in range(64)}
    assert len(found) == 64
    assert digest(bytes(range(33)), *SECRET) == _keys.digest(bytes(range(33)), *SECRET)
