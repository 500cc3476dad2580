"""docs/everyday.md: the lines of each job are typed, at a broker of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing import Broker
from support.everyday import Job, check_job, jobs, jobs_at
from support.played_registry import PlayedRegistry
from support.walkthrough import SHOWN_PORT

pytestmark = pytest.mark.spec("U2")


def test_there_are_sixty_and_half_are_typed_against_apache_kafka() -> None:
    assert len(jobs_at("ottla")) >= 60
    assert len(jobs_at("apache")) * 2 >= len(jobs()) - 1


@pytest.mark.parametrize("job", jobs_at("ottla"), ids=lambda job: job.title)
def test_a_job_is_done_as_shown(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker(data=tmp_path / "data") as broker, PlayedRegistry({}) as registry:
        monkeypatch.setenv("OTTLA_SCHEMA_REGISTRY", registry.address)
        check_job(job, monkeypatch, {SHOWN_PORT: broker.bootstrap_servers.rpartition(":")[2]})
