"""The coordinator's clock: wall time without jumps."""

from __future__ import annotations

from ottla.broker.coordinators.runtime import SteadyClock


class FakeClock:
    def __init__(self) -> None:
        self.wall = 1_000_000
        self.monotonic = 5.0

    def now_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> float:
        return self.monotonic


def test_a_jump_of_the_wall_clock_is_not_followed():
    clock = FakeClock()
    steady = SteadyClock(clock)
    assert steady.now_ms() == 1_000_000
    clock.wall += 3_600_000
    clock.monotonic += 10
    assert steady.now_ms() == 1_000_010


def test_the_wall_clock_is_approached_in_small_steps():
    clock = FakeClock()
    steady = SteadyClock(clock)
    clock.wall += 700
    steady.correct()
    assert steady.now_ms() == 1_000_500
    steady.correct()
    assert steady.now_ms() == 1_000_700
    clock.wall -= 10_000
    steady.correct()
    assert steady.now_ms() == 1_000_200
