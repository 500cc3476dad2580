"""Encoded Metadata answers are kept while the cluster stays as it is, and never too much of them."""

from __future__ import annotations

from ottla.broker.metadata_cache import CACHED_ANSWERS, CACHED_BYTES, MetadataCache


def test_an_answer_is_kept_until_the_cluster_changes() -> None:
    cache = MetadataCache()
    assert cache.get(1, "a") is None
    cache.put(1, "a", b"body")
    assert cache.get(1, "a") == b"body"
    assert cache.get(2, "a") is None
    cache.put(1, "a", b"old")
    assert cache.get(2, "a") is None


def test_what_is_kept_is_bounded_in_number_and_in_bytes() -> None:
    cache = MetadataCache()
    cache.get(1, "")
    for number in range(2 * CACHED_ANSWERS):
        cache.put(1, number, b"x")
    assert sum(cache.get(1, number) is not None for number in range(2 * CACHED_ANSWERS)) == CACHED_ANSWERS
    cache.get(2, "")
    third = bytes(CACHED_BYTES // 3)
    for number in range(5):
        cache.put(2, number, third)
    assert sum(cache.get(2, number) is not None for number in range(5)) == 3
    cache.get(3, "")
    cache.put(3, "again", third)
    assert cache.get(3, "again") is third
