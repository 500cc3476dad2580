"""`ottla container`, and the files of docker/: the image's start command, compose, systemd."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer

from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.container import ContainerSettings, container_settings
from support.container import MODULES, started_container
from support.examples import environment_with_ottla
from support.image_build import steps
from support.java import PROJECT
from support.processes import run_tool

pytestmark = [pytest.mark.slow, pytest.mark.spec("U4")]

DOCKER = PROJECT / "docker"
RUN = "etc/kafka/docker/run"
TIMEOUT_S = 60.0


def use(bootstrap: str) -> None:
    """Produce and consume in a group, by the address that the module gives, and by no other."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", b"4 apples")
    assert producer.flush(TIMEOUT_S) == 0
    brokers = producer.list_topics(timeout=TIMEOUT_S).brokers.values()
    assert [f"{broker.host}:{broker.port}" for broker in brokers] == [bootstrap]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    record = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert record is not None
    assert record.value() == b"4 apples"


def test_an_advertised_port_that_is_known_after_the_start(tmp_path: Path) -> None:
    env = {"KAFKA_LOG_DIRS": str(tmp_path / "data"), **environment_with_ottla(tmp_path)}
    replaced = (f"/{RUN}", str(DOCKER / "rootfs" / RUN))
    with started_container(MODULES["java"], tmp_path, replaced=replaced, env=env) as container:
        use(container.bootstrap)
        awaited = re.findall(".*Transitioning from RECOVERY to RUNNING.*", container.process.stdout)
        assert len(awaited) == 1
        assert re.search(MODULES["python"].awaited, container.process.stdout)
        assert "Kafka Server started" in container.process.stdout
    assert (tmp_path / "data" / "orders-0").is_dir()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"KAFKA_PROCESS_ROLES": "controller"}, "ottla has no KRaft controllers"),
        ({"KAFKA_AUTHORIZER_CLASS_NAME": "org.example.Authorizer"}, "authorizer.class.name cannot be honoured"),
        ({"KAFKA_NUM_PARTITIONS": "many"}, "num.partitions"),
    ],
)
def test_variables_that_cannot_be_used(variables: dict[str, str], message: str) -> None:
    done = run_tool([sys.executable, "-m", "ottla", "container"], env=variables, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.startswith("ottla container: ")


def test_the_compose_file() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    broker = compose["services"]["broker"]
    assert (DOCKER / broker["build"]["context"] / broker["build"]["dockerfile"]).is_file()
    made = container_settings(broker["environment"])
    assert isinstance(made, ContainerSettings)
    config = parse_broker_config(made.settings)
    assert isinstance(config, BrokerConfig), config
    assert config.warnings == []
    advertised = {endpoint.listener_name: f"{endpoint.host}:{endpoint.port}" for endpoint in config.advertised}
    assert advertised == {"HOST": "localhost:9092", "SERVICES": "broker:9093"}
    (volume,) = broker["volumes"]
    name, _, directory = volume.partition(":")
    assert name in compose["volumes"]
    assert [directory] == config.log_dirs
    assert broker["healthcheck"]["test"][:2] == ["CMD", "ottla"]


def test_the_health_check_of_the_compose_file(ottla_server: object, tmp_path: Path) -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    command = compose["services"]["broker"]["healthcheck"]["test"][1:]
    bootstrap = ottla_server.bootstrap  # type: ignore[attr-defined]
    env = environment_with_ottla(tmp_path)
    healthy = ["sh", "-c", " ".join(command).replace("localhost:9092", bootstrap)]
    run_tool(healthy, env=env)
    sick = ["sh", "-c", " ".join(command).replace("localhost:9092", "127.0.0.1:1")]
    assert run_tool(sick, env=env, check=False).returncode != 0


def test_the_unit_of_systemd(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DOCKER / "ottla.service")
    service = unit["Service"]
    command = service["ExecStart"].split()
    assert command[1:] == ["serve", "--properties", "/etc/ottla/server.properties", "--data", "/var/lib/ottla"]
    assert service["RestartPreventExitStatus"] == "2"
    if shutil.which("systemd-analyze") is None:
        return
    here = tmp_path / "ottla.service"
    here.write_text((DOCKER / "ottla.service").read_text().replace(command[0], sys.executable))
    done = run_tool(["systemd-analyze", "verify", str(here)], env={"PATH": os.environ["PATH"]}, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_has_what_its_scripts_name() -> None:
    for script in (DOCKER / "rootfs").rglob("*"):
        if script.is_file() and script.name != "bash-config":
            assert script.stat().st_mode & 0o111, script
    found = steps(DOCKER / "Dockerfile")
    assert found[0].instruction == "FROM"
    assert found[-1] == ("CMD", f'["/{RUN}"]')
    for step in found:
        if step.instruction == "COPY":
            assert (PROJECT / step.arguments.split()[0]).exists()
