"""Half the jobs of docs/everyday.md and more, typed against Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.apache import ApacheKafka, ApacheZooKeeper
from support.everyday import Job, check_job, jobs_at
from support.walkthrough import SHOWN_PORT

pytestmark = [pytest.mark.slow, pytest.mark.needs_java, pytest.mark.needs_kafka, pytest.mark.spec("U2")]


@pytest.mark.parametrize(
    ("number", "job"), list(enumerate(jobs_at("apache"))), ids=lambda each: getattr(each, "title", "")
)
def test_a_job_is_done_as_shown(
    number: int,
    job: Job,
    apache_kafka: ApacheKafka,
    apache_zookeeper: ApacheZooKeeper,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(apache_kafka.log_dir)
    # Each job has topics and groups of its own, with names as long as the page's.
    names = {
        "orders": f"ord{number:03}",
        "greetings": f"greet{number:04}",
        "payments": f"payme{number:03}",
        "billing": f"bill{number:03}",
        "shipping": f"shipp{number:03}",
    }
    ports = {SHOWN_PORT: apache_kafka.bootstrap.rpartition(":")[2], "2181": str(apache_zookeeper.port)}
    check_job(job, monkeypatch, {**names, **ports})
