from __future__ import annotations

import pytest

from ottla.client.named_rack import FIRST_PAUSE_MS, NamedRack

pytestmark = pytest.mark.spec("R2")


def test_the_rack_is_left_out_for_longer_and_longer_until_a_follower_serves() -> None:
    rack = NamedRack("r1", 4 * FIRST_PAUSE_MS)
    assert rack.at(0.0) == "r1"
    now_ms = 0.0
    for pause_ms in (FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS):
        rack.failed(now_ms)
        assert (rack.at(now_ms + pause_ms - 1), rack.at(now_ms + pause_ms)) == ("", "r1")
        now_ms += pause_ms
    rack.served()
    rack.failed(now_ms)
    assert rack.at(now_ms + FIRST_PAUSE_MS) == "r1"


def test_the_pause_is_never_longer_than_a_follower_would_be_read() -> None:
    rack = NamedRack("r1", 50.0)
    rack.failed(0.0)
    assert rack.at(50.0) == "r1"
