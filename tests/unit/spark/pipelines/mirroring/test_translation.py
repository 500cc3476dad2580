"""Translated offsets: never ahead of what a group has consumed, whatever was sent again."""

from __future__ import annotations

import random

import pytest

from ottla.spark.pipelines.mirroring.translation import MOST_SYNCS, Sync, SyncHistory, thinned

pytestmark = pytest.mark.spec("R6")


@pytest.mark.parametrize("seed", range(30))
def test_no_record_that_was_not_consumed_is_skipped(seed: int) -> None:
    chance = random.Random(seed)
    history = SyncHistory()
    target: list[int] = []  # The source's offset of each record.
    source = [offset for offset in range(400) if chance.random() < 0.8]
    position = 0
    while position < len(source):
        batch = source[position : position + chance.randrange(1, 60)]
        for _ in range(chance.choice((1, 1, 1, 2))):  # The driver died after it had sent them.
            first = len(target)
            target += batch[: chance.randrange(1, len(batch) + 1)] if chance.random() < 0.2 else batch
            if len(target) - first < len(batch):  # And before it knew.
                continue
            for row in range(0, len(batch), chance.randrange(1, 20)):
                history.add(Sync(batch[row], first + row))
            history.add(Sync(batch[-1], first + len(batch) - 1))
        if target[-1] == batch[-1]:
            position += len(batch)
        for committed in range(0, 420, 7):
            translated = history.translate(committed)
            if translated is None:
                continue
            assert translated <= len(target)
            left = {offset for offset in source[:position] if offset >= committed}
            assert left <= set(target[translated:]), (committed, translated)


def test_a_topic_that_was_made_anew_forgets_what_was() -> None:
    history = SyncHistory()
    for sync in (Sync(0, 0), Sync(50, 50), Sync(0, 51)):
        history.add(sync)
    assert history.syncs == (Sync(0, 51),)
    assert history.translate(0) == 51


def test_a_target_that_was_made_anew_forgets_what_was() -> None:
    history = SyncHistory()
    for sync in (Sync(0, 0), Sync(50, 50), Sync(51, 10)):
        history.add(sync)
    assert history.syncs == (Sync(0, 0), Sync(51, 10))


def test_a_long_history_is_bounded_and_finer_where_groups_are() -> None:
    history = SyncHistory()
    for number in range(200_000):
        history.add(Sync(number * 3, number * 2))
    assert len(history) <= MOST_SYNCS
    newest = history.newest
    assert newest == Sync(599_997, 399_998)
    assert history.syncs[0] == Sync(0, 0)
    for distance in (0, 30, 300, 3_000, 30_000, 300_000):
        translated = history.translate(newest.upstream - distance)
        assert translated is not None
        behind = (newest.upstream - distance) * 2 // 3 - translated
        assert 0 <= behind <= distance / 2 + 1, distance


def test_thinning_keeps_the_newest_and_the_oldest() -> None:
    syncs = [Sync(number, number) for number in range(1_000)]
    kept = thinned(syncs)
    assert (kept[0], kept[-1]) == (syncs[0], syncs[-1])
    assert kept == sorted(set(kept))
    assert len(kept) < 64
