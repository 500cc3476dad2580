"""Figures of a run, and which promises it has broken."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from ottla.cli.profile.commands import show_result
from ottla.cli.terminal import Terminal
from ottla.profiles.checker import Checked
from ottla.profiles.latencies import Latencies
from ottla.profiles.producing import ProducerResult
from ottla.profiles.result import ProfileResult, result_of
from ottla.profiles.workload import CLICKS, PAYMENTS, ProfileLoad

pytestmark = pytest.mark.spec("D6")

WELL = Checked(read=300, lost=0, doubled=0, reordered=0, strange=0)


def load(*, pays: bool = True, disturbed: bool = False, most_p99_ms: float | None = None) -> ProfileLoad:
    workload = PAYMENTS if pays else CLICKS
    return ProfileLoad(workload, 2, 12, 3, 200, records=300, most_p99_ms=most_p99_ms, is_disturbed=disturbed)


def result(number: int, acknowledged: int, seconds: float, ms: float, refused: int = 0) -> ProducerResult:
    latencies = Latencies()
    latencies.add(ms, acknowledged)
    errors = ["the broker is gone"] if refused else []
    handed_over = acknowledged + refused
    return ProducerResult(
        number, handed_over, acknowledged, refused, [], seconds, 0.5, 1e6 + number, latencies.counts, errors
    )


def profile_result(of: ProfileLoad, checked: Checked = WELL, *, ms: float = 10.0, refused: int = 0) -> ProfileResult:
    results = [result(0, 200, 2.0, 1.0), result(1, 100, 1.5, ms, refused)]
    return result_of(of, results, checked, check_s=0.25, brokers_cpu_s=3.0)


def test_rates_are_those_of_all_producers_until_the_last_one_ended() -> None:
    found = profile_result(load())
    assert (found.acknowledged, found.seconds, found.records_per_s) == (300, 2.0, 150.0)
    assert found.mb_per_s == pytest.approx(0.03)
    assert found.of_mark == pytest.approx(0.00015)
    assert found.p50_ms == pytest.approx(1.0, rel=0.02)
    assert found.p99_ms == pytest.approx(10.0, rel=0.02)
    assert (found.producers_cpu_s, found.brokers_cpu_s, found.alone_per_s) == (1.0, 3.0, 1e6)
    assert found.broken == ()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"lost": 1}, "1 acknowledged records are lost"),
        ({"doubled": 2_000}, "2,000 records are there twice"),
        ({"reordered": 3}, "3 records are out of order"),
        ({"strange": 4}, "4 records were read that were never sent"),
    ],
)
def test_payments_break_their_promise(what: dict[str, int], message: str) -> None:
    assert profile_result(load(), replace(WELL, **what)).broken == (message,)


def test_clicks_may_be_lost_doubled_and_reordered_but_not_made_up() -> None:
    assert profile_result(load(pays=False), Checked(299, 2, 1, 1, 0), ms=9_000, refused=5).broken == ()
    late = load(pays=False, most_p99_ms=100)
    assert profile_result(late, ms=600).broken == ("p99 is 605 ms, and was to be below 100 ms",)
    assert profile_result(load(pays=False), replace(WELL, strange=1)).broken == (
        "1 records were read that were never sent",
    )


def test_payments_have_to_be_taken_in_time() -> None:
    assert profile_result(load(), ms=600).broken == ("p99 is 605 ms, and was to be below 500 ms",)
    assert profile_result(load(most_p99_ms=700), ms=600).broken == ()
    assert profile_result(load(most_p99_ms=5), ms=10).broken == ("p99 is 10 ms, and was to be below 5 ms",)
    assert profile_result(load(disturbed=True), ms=600).broken == (), "a broker's death takes its time"
    assert profile_result(load(), refused=7).broken == ("7 records were not acknowledged",)


def test_nothing_acknowledged_keeps_no_promise() -> None:
    nothing = result_of(load(pays=False), [result(0, 0, 0.0, 1.0)], WELL, check_s=0.0, brokers_cpu_s=None)
    assert nothing.broken == ("no record was acknowledged",)
    assert (nothing.p99_ms, nothing.records_per_s) == (None, 0.0)


def test_a_result_survives_its_way_from_the_process() -> None:
    from dataclasses import asdict

    sent = replace(result(3, 10, 1.0, 5.0, refused=2), uncertain=[(4, 6)])
    assert ProducerResult.from_row(json.loads(json.dumps(asdict(sent)))) == sent


def test_the_table() -> None:
    stream = io.StringIO()
    show_result(Terminal(stream, width=None, colours=False), profile_result(load(), replace(WELL, lost=3), refused=7))
    text = stream.getvalue()
    assert text.startswith("payments: 12 partitions with 3 replicas, 2 producers, 200-byte values\n")
    lines = [line.split("  ") for line in text.splitlines()]
    cells = {line[1]: [each.strip() for each in line[2:] if each.strip()] for line in lines if len(line) > 2}
    assert cells["records/s"] == ["150", "0% of a million"]
    assert cells["lost"] == ["3"]
    assert cells["twice"] == ["0"]
    assert "  an error of the producers: the broker is gone\n" in text
    assert text.endswith("broken: 3 acknowledged records are lost\nbroken: 7 records were not acknowledged\n")
    again = io.StringIO()
    show_result(Terminal(again, width=None, colours=False), profile_result(load()))
    assert again.getvalue().endswith("kept: all that the profile promises\n")
