"""`ottla group watch` while the broker is killed and comes back: it waits, and continues."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from support.ottla_server import OttlaServer
from support.processes import ServerProcess
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("G10")]


def member(broker: OttlaServer, client_id: str) -> Consumer:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "client.id": client_id, "log_level": 0}
    consumer = Consumer(config)
    consumer.subscribe(["t"])
    return consumer


def events(watch: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in watch.stdout.splitlines()]


def causes(watch: ServerProcess) -> list[tuple[str, str]]:
    return [
        (cause["cause"], cause["client_id"])
        for event in events(watch)
        if event["event"] == "rebalance"
        for cause in event["causes"]
    ]


def test_a_broker_that_comes_back(ottla_server: OttlaServer, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": ottla_server.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 4)])["t"].result(60)
    line = [sys.executable, "-m", "ottla", "group", "watch", "-b", ottla_server.bootstrap, "--json"]
    watch = ServerProcess("watch", [*line, "--interval", "0.1", "--timeout", "1", "g"], tmp_path)
    try:
        watch.wait_until_ready(lambda: "Dead" in watch.stdout, 60)
        with closing(member(ottla_server, "anna")) as anna:
            wait_until(lambda: anna.poll(0.05) or ("member_joined", "anna") in causes(watch), "anna's join is told")
            ottla_server.kill9()
            wait_until(lambda: "trying again" in watch.stderr, "the watcher has noticed")
            ottla_server.restart()
            with closing(member(ottla_server, "ben")) as ben:

                def told() -> bool:
                    anna.poll(0.05)
                    ben.poll(0.05)
                    return ("member_joined", "ben") in causes(watch)

                wait_until(told, "ben's join is told")
        assert watch.stderr.count("trying again") == 1
        assert causes(watch).count(("member_joined", "anna")) == 1
        assert watch.running
    finally:
        watch.kill9()
