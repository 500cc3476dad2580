"""Rates of clients over sliding samples, and buckets of tokens, as Apache Kafka's `Rate` and `TokenBucket`. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

#: The longest throttle time: the field of the response is an int32.
LONGEST_MS: Final = 2**31 - 1


class _Sample:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class SampledRate:
    """A rate a second over `count` samples of `sample_ms`; the elapsed time counts as `count - 1` samples at least."""

    __slots__ = ("_count", "_sample_ms", "_samples")

    def __init__(self, count: int, sample_ms: float) -> None:
        self._count = count
        self._sample_ms = sample_ms
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: float) -> None:
        """Count a value; a negative one takes back what was counted."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._sample_ms:
            samples.append(_Sample(now_ms))
        samples[-1].total += value
        samples[-1].last_ms = now_ms

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """How long to wait until the rate is down to the limit; 0 if it is not above it."""
        samples, window_ms = self._samples, self._count * self._sample_ms
        while samples and now_ms - samples[0].last_ms >= window_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0.0
        missing = self._count - 1 - int(elapsed_ms / self._sample_ms)
        elapsed_ms = max(elapsed_ms + max(0, missing) * self._sample_ms, 1.0)
        rate = sum([sample.total for sample in samples]) * 1000 / elapsed_ms
        if not rate > limit:  # a limit may be NaN
            return 0
        if limit <= 0:
            return int(window_ms)
        return round(min(LONGEST_MS, (rate - limit) / limit * elapsed_ms))


class TokenBucket:
    """Tokens that come at a rate a second, up to those of `burst_s` seconds; it is full at first."""

    __slots__ = ("_burst_s", "_last_ms", "_tokens")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._tokens: float | None = None
        self._last_ms = 0.0

    def tokens(self, rate: float, now_ms: float) -> float:
        """Tokens that are there now; below 0, more were taken."""
        burst = self._burst_s * rate
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + (now_ms - self._last_ms) / 1000 * rate)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: float) -> None:
        """Take tokens, more than there are if need be."""
        self._tokens = self.tokens(rate, now_ms) - count

    def throttle_ms(self, rate: float, now_ms: float) -> int:
        """How long until there are not fewer than 0."""
        missing = -self.tokens(rate, now_ms)
        if not missing > 0:
            return 0
        return round(min(LONGEST_MS, missing / rate * 1000)) if rate > 0 else int(self._burst_s * 1000)
