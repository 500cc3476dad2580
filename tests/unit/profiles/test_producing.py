"""A producer process of a run: what it calls acknowledged, refused and uncertain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.client.errors import ClientTimeoutError
from ottla.client.model import TopicPartition
from ottla.client.producer.futures import BatchResult
from ottla.env.threads import Lock
from ottla.profiles import producing
from ottla.profiles.latencies import Latencies
from ottla.profiles.producing import (
    MOST_FAILURES,
    MOST_PACED_CHUNKS,
    LoadProducer,
    ProducerResult,
    ProducerTask,
    TimedFuture,
    settings_of,
)

pytestmark = pytest.mark.spec("D6")

#: Of a chunk.
ROWS = 1_000
FAILURE = ClientTimeoutError("nobody answers")


class PlayedTime:
    """In place of the module `time`: a look at the clock takes 10 µs, and a pause as long as it has to."""

    def __init__(self) -> None:
        self._now_s = 1_000.0

    def perf_counter(self) -> float:
        self._now_s += 1e-5
        return self._now_s

    process_time = perf_counter

    def time_ns(self) -> int:
        return 1_700_000_000_000_000_000 + round(self._now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


@pytest.fixture(autouse=True)
def played_time(monkeypatch: pytest.MonkeyPatch) -> PlayedTime:
    played = PlayedTime()
    monkeypatch.setattr(producing, "time", played)
    return played


class PlayedProducer:
    """Acknowledges each chunk in two halves at once, but for what the numbers of calls say."""

    def __init__(self, *, halves_lost: tuple[int, ...] = (), calls_failing: tuple[int, ...] = ()) -> None:
        self.calls = 0
        self._halves_lost = halves_lost
        self._calls_failing = calls_failing

    def partitions_for(self, topic: str) -> list[Any]:
        return []

    def send_arrow(self, data: Any, topic: str, *, into: TimedFuture) -> None:
        call = self.calls
        self.calls += 1
        half = data.num_rows // 2
        self._batch(into, half, None)
        if call in self._calls_failing:
            raise FAILURE
        self._batch(into, data.num_rows - half, FAILURE if call in self._halves_lost else None)

    def _batch(self, into: TimedFuture, count: int, error: ClientTimeoutError | None) -> None:
        result = BatchResult(TopicPartition("t", 0), Lock())
        into.add_batch(result, count)
        result.complete(0, -1, error)


def produce(producer: PlayedProducer, records: int | None, **options: Any) -> ProducerResult:
    task = ProducerTask({}, "t", "payments", 0, 12, 130, records, options.get("seconds"), options.get("per_s"), 10**9)
    rows: list[Mapping[str, Any]] = []
    load = LoadProducer(task, producer, rows.append, chunk_rows=ROWS)  # type: ignore[arg-type]
    load.prepare(alone_s=0.001)
    result = load.run()
    assert rows, "progress was not reported"
    return result


def test_all_is_acknowledged() -> None:
    result = produce(PlayedProducer(), 2 * ROWS + 10)
    assert (result.handed_over, result.acknowledged, result.refused) == (2 * ROWS + 10,) * 2 + (0,)
    assert (result.uncertain, result.errors) == ([], [])
    assert sum(result.latencies.values()) == result.acknowledged
    assert result.alone_per_s > 0


def test_time_ends_it() -> None:
    result = produce(PlayedProducer(), None, seconds=0.05)
    assert result.acknowledged == result.handed_over > 0
    assert result.elapsed_s >= 0.05


def test_a_chunk_of_which_a_batch_failed_is_uncertain() -> None:
    result = produce(PlayedProducer(halves_lost=(1, 2, 5)), 6 * ROWS)
    assert result.refused == 3 * ROWS // 2
    assert result.acknowledged == 6 * ROWS - result.refused
    assert result.uncertain == [(ROWS, 3 * ROWS), (5 * ROWS, 6 * ROWS)]
    assert result.errors == ["nobody answers"]
    assert Latencies(result.latencies).percentile_ms(100) is not None
    assert sum(result.latencies.values()) == result.acknowledged


def test_a_call_that_failed_half_way() -> None:
    result = produce(PlayedProducer(calls_failing=(1,)), 3 * ROWS)
    assert result.refused == ROWS // 2
    assert result.acknowledged == 3 * ROWS - result.refused
    assert result.uncertain == [(ROWS, 2 * ROWS)]


def test_it_gives_up_when_no_call_works_any_more() -> None:
    producer = PlayedProducer(calls_failing=tuple(range(1, 100)))
    result = produce(producer, 1_000 * ROWS)
    assert producer.calls == 1 + MOST_FAILURES
    assert result.uncertain == [(ROWS, (1 + MOST_FAILURES) * ROWS)]


def test_settings_are_the_profiles() -> None:
    payments = settings_of(ProducerTask({"bootstrap.servers": "h:1"}, "t", "payments", 3, 12, 130, 1, None, None, 1))
    assert (payments["acks"], payments["enable.idempotence"], payments["client.id"]) == (
        "all",
        True,
        "profile-payments-3",
    )
    clicks = settings_of(ProducerTask({"bootstrap.servers": "h:1"}, "t", "clicks", 0, 12, 130, 1, None, None, 1))
    assert (clicks["acks"], clicks["enable.idempotence"]) == ("1", False)


def test_a_rate_is_kept_and_latencies_count_from_when_records_were_due() -> None:
    result = produce(PlayedProducer(), 300, per_s=2_000.0)
    assert result.acknowledged == 300
    assert result.elapsed_s >= 299 / 2_000
    # Even of one who acknowledges at once: a tick's first record has waited for its last one.
    assert (Latencies(result.latencies).percentile_ms(100) or 0.0) >= 5.0


def test_at_a_rate_time_ends_it_too() -> None:
    result = produce(PlayedProducer(), None, seconds=0.05, per_s=0.001)
    assert result.acknowledged == result.handed_over == 1


class SlowProducer(PlayedProducer):
    """Acknowledges a chunk a while after somebody has begun to wait for it."""

    def __init__(self, played_time: PlayedTime) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._time = played_time

    def send_arrow(self, data: Any, topic: str, *, into: TimedFuture) -> None:
        self.sizes.append(data.num_rows)
        into.add_batch(WaitedFor(self._time), data.num_rows)


class WaitedFor(BatchResult):
    """Is acknowledged when somebody waits for it, after a while."""

    def __init__(self, played_time: PlayedTime) -> None:
        super().__init__(TopicPartition("t", 0), Lock())
        self._time = played_time

    def wait(self, timeout_s: float | None) -> bool:
        self._time.sleep(0.05)
        self.complete(0, -1)
        return True


def test_records_gather_where_acknowledgements_are_slow(played_time: PlayedTime) -> None:
    producer = SlowProducer(played_time)
    result = produce(producer, 2_000, per_s=10_000.0)
    assert result.acknowledged == 2_000
    assert producer.sizes[0] < 1_000
    assert max(producer.sizes[MOST_PACED_CHUNKS + 1 :]) >= 400, producer.sizes
    assert len(producer.sizes) < 20
