"""`ottla profile` on Apache Kafka: it is a client of any cluster."""

from __future__ import annotations

import json
import sys

import pytest

from ottla.client.sync import Client
from support.brokers import RunningBroker
from support.processes import run_tool

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka, pytest.mark.spec("D6")]


def test_clicks_on_apache_kafka(apache_kafka: RunningBroker) -> None:
    arguments = ["clicks", "-b", apache_kafka.bootstrap, "--records", "20000", "--timeout", "60", "--json"]
    done = run_tool([sys.executable, "-m", "ottla", "profile", *arguments])
    found = json.loads(done.stdout)
    assert (found["acknowledged"], found["read"], found["replication_factor"]) == (20_000, 20_000, 1)
    assert (found["lost"], found["doubled"], found["strange"], found["brokers_cpu_s"]) == (0, 0, 0, None)
    with Client(apache_kafka.bootstrap) as client:
        assert client.topics("profile-clicks-.*") == []
