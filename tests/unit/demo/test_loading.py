"""How events are cut into slices."""

from __future__ import annotations

import pytest

from ottla.demo.loading import LARGEST_SLICE, slice_size


@pytest.mark.parametrize(
    ("events", "seconds", "size"),
    [(336_776, 25, 1_347), (100, 25, 1), (1, 0, 1), (50_000, 0, LARGEST_SLICE), (10_000, 1, 1_000), (600, 2, 30)],
)
def test_a_slice_is_a_tenth_of_a_second_s_share(events: int, seconds: float, size: int) -> None:
    assert slice_size(events, seconds) == size
