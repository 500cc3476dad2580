"""Loads: shares of producers, and replicas on clusters of all sizes."""

from __future__ import annotations

import pytest

from ottla.profiles.run import tasks_of
from ottla.profiles.workload import CLICKS, PAYMENTS, ProfileError, ProfileLoad, Workload

pytestmark = pytest.mark.spec("D6")


def load(workload: Workload, factor: int | None = None) -> ProfileLoad:
    return ProfileLoad(workload, 3, 12, factor, 200, records=1_000, per_s=300.0)


def test_records_and_rate_are_shared_out() -> None:
    tasks = tasks_of(load(PAYMENTS), {}, "t")
    assert [each.records for each in tasks] == [334, 333, 333]
    assert [each.per_s for each in tasks] == [100.0] * 3
    assert [each.number for each in tasks] == [0, 1, 2]


@pytest.mark.parametrize(
    ("workload", "factor", "brokers", "replicas"),
    [(PAYMENTS, None, 3, 3), (PAYMENTS, None, 9, 3), (PAYMENTS, 5, 5, 5), (CLICKS, None, 3, 2), (CLICKS, None, 1, 1)],
)
def test_replicas(workload: Workload, factor: int | None, brokers: int, replicas: int) -> None:
    assert load(workload, factor).replicas_on(brokers) == replicas


@pytest.mark.parametrize(
    ("workload", "factor", "brokers", "message"),
    [
        (PAYMENTS, None, 2, "payments needs 3 brokers, a replica on each, and the cluster has 2"),
        (PAYMENTS, 2, 3, "replication factor 2: payments promises 3 replicas"),
        (PAYMENTS, 4, 3, "replication factor 4 needs as many brokers, and the cluster has 3; give 3 or less"),
        (CLICKS, 3, 2, "replication factor 3 needs as many brokers, and the cluster has 2; give 2 or less"),
    ],
)
def test_too_few_brokers(workload: Workload, factor: int | None, brokers: int, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        load(workload, factor).replicas_on(brokers)
