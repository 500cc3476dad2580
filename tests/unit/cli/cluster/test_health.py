"""What `ottla cluster health` prints: once, and as findings begin and are over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest

from ottla.cli.cluster import health
from ottla.cli.cluster.health import HealthOptions, show_health
from ottla.client.errors import ClientError
from ottla.env.clock import SystemClock
from ottla.ops.health.facts import HealthFacts
from unit.ops.health.test_judging import HEALTHY, cluster, partition

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

pytestmark = pytest.mark.spec("R1", "U2")

BEHIND = cluster(partition(isr=(1, 2), lag=7))
NEARER = cluster(partition(isr=(1, 2), lag=2))
Looks = Sequence[HealthFacts | ClientError]


class FakePeer:
    """A cluster of which only the clock is asked."""

    clock = SystemClock()


def shown(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    looks: Looks,
    *,
    watch: bool = False,
    as_json: bool = False,
) -> tuple[int, str, str]:
    """Exit code, output and messages where the cluster looks like this, one look after the other."""
    left = list(looks)

    async def read(_: object, __: object) -> HealthFacts:
        found = left.pop(0)
        if isinstance(found, ClientError):
            raise found
        return found

    monkeypatch.setattr(health, "read_health_facts", read)
    options = HealthOptions(watch, 0, len(looks), as_json)
    code = asyncio.run(show_health(cast("Cluster", FakePeer()), options))
    printed = capsys.readouterr()
    assert left == []
    return code, printed.out, printed.err


def test_a_healthy_cluster_in_one_look(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(monkeypatch, capsys, [HEALTHY]) == (0, "cluster abc  3 brokers · 3 partitions · healthy\n", "")


def test_replicas_that_lag_take_two_looks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = shown(monkeypatch, capsys, [BEHIND, NEARER])
    assert code == 1
    assert "warning  lagging-replicas  1 replica of broker 3 lags by up to 2 records, catching up\n    Wait: " in text


def test_watching_says_what_begins_and_what_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = [HEALTHY, BEHIND, NEARER, HEALTHY]
    code, text, _ = shown(monkeypatch, capsys, looks, watch=True)
    _, *lines = text.splitlines()
    assert code == 0
    assert [line.split("  ")[1:3] for line in lines if " UTC  " in line] == [
        ["warning", "under-replicated"],
        ["warning", "lagging-replicas"],
        ["over", "under-replicated"],
        ["over", "lagging-replicas"],
    ]


def test_watching_goes_on_where_the_cluster_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks: Looks = [HEALTHY, ClientError("nobody answers"), ClientError("nobody answers"), BEHIND]
    code, text, errors = shown(monkeypatch, capsys, looks, watch=True, as_json=True)
    assert errors == "ottla cluster: nobody answers; trying again\n"
    assert code == 1
    assert [row["event"] for row in map(json.loads, text.splitlines()) if "event" in row] == ["began", "began"]
    assert shown(monkeypatch, capsys, looks[:2], watch=True)[0] == 2
