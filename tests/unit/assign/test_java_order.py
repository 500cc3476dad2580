"""Java's orders of strings."""

from __future__ import annotations

import pytest

from ottla.assign.java_order import (
    computed_map_order,
    hash_map_order,
    partition_hash,
    scala_map_order,
    scala_map_parts,
    sorted_texts,
    string_hash,
    table_size,
    text_order,
)


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", 0x80000000), ("é", 233)]
)
def test_hashes_of_java(text: str, value: int):
    assert string_hash(text) == value


def test_characters_beyond_the_first_plane_are_two_units():
    assert string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert sorted(["\uff5e", "\U0001f600", "a"], key=text_order) == ["a", "\U0001f600", "\uff5e"]


@pytest.mark.parametrize("length", [127, 128, 129, 130, 131, 132, 255, 256, 1_001, 32_767])
@pytest.mark.parametrize("letters", ["ab\x7f", "\uffffé\U0001f600z", "\0"])
def test_long_strings_are_hashed_as_defined(length: int, letters: str):
    text = "".join(letters[(index * index + 1) % len(letters)] for index in range(length))
    hashed, units = 0, text_order(text)
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    assert string_hash(text) == hashed


def test_half_a_character_is_no_error():
    assert text_order("\ud83d") < text_order("\U0001f600")


def test_keys_in_one_slot_stay_in_the_order_in_which_they_came():
    assert hash_map_order(["b", "BB", "Aa", "a"]) == ["BB", "Aa", "a", "b"]
    assert hash_map_order(["a", "Aa", "b", "BB", "a"]) == ["Aa", "BB", "a", "b"]


def test_the_table_grows_above_three_quarters():
    letters = [chr(ord("a") + n) for n in range(12)]
    # "q" shares the slot of "a" among 16, not among 32.
    assert hash_map_order(["q", *letters[:11]]) == ["q", *letters[:11]]
    assert hash_map_order(["q", *letters]) == [*letters, "q"]


def test_partitions_hash_as_in_java():
    assert partition_hash(string_hash("t"), 3) == 31 * (31 + 3) + 116
    assert partition_hash(0xFFFFFFFF, 0) == 31 * 31 - 1


def test_texts_are_sorted_as_in_java():
    assert sorted_texts(["b", "a", "B"]) == ["B", "a", "b"]
    assert sorted_texts(["\uff5e", "\U0001f600", "a"]) == ["a", "\U0001f600", "\uff5e"]


def test_computed_keys_come_before_those_in_their_slot():
    assert computed_map_order(["ab", "a", "b", "a"]) == ["a", "ab", "b"]
    letters = [chr(ord("a") + n) for n in range(13)]
    # "q" shares the slot of "a" among 16, not among 32; with put() the 13th key makes the table larger.
    assert computed_map_order(["q", *letters[:12]]) == ["a", "q", *letters[1:12]]
    assert computed_map_order(["q", *letters]) == [*letters, "q"]


@pytest.mark.parametrize("count", [0, 1, 11, 12, 511, 5_000])
def test_keys_of_scala_come_in_the_order_of_slots_and_hashes(count: int):
    keys = [str(number) for number in range(count)]
    table = table_size(count + 1)
    by_slot: dict[int, list[tuple[int, int, str]]] = {}
    for place, key in enumerate(keys):
        spread = string_hash(key) ^ string_hash(key) >> 16
        by_slot.setdefault(spread % table, []).append((spread, place, key))
    expected = [key for _, members in sorted(by_slot.items()) for _, _, key in sorted(members)]
    assert scala_map_order(keys + keys) == expected
    parts = list(scala_map_parts(keys, count))
    assert [key for part in parts for key in part] == expected
    assert max(map(len, parts), default=0) <= 1_000


def test_keys_of_scala_with_the_same_hash_stay_in_order():
    assert scala_map_order(["BB", "x", "Aa"]) == ["BB", "Aa", "x"]
    assert scala_map_order(["Aa", "x", "BB"]) == ["Aa", "BB", "x"]
