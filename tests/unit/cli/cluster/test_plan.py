"""Which processes a cluster on this machine has, and options that cannot be."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ottla.cli.cluster.plan import (
    ClusterPlanOptions,
    PlannedProcess,
    check_options,
    command_line,
    plan_brokers,
    plan_zookeeper,
)
from ottla.cli.command import CommandError
from ottla.cli.entry import plain_serve_options, plain_zookeeper_options
from ottla.cli.main import app


def settings_of(plan: PlannedProcess) -> dict[str, str]:
    options = plain_serve_options(plan.arguments)
    assert options is not None
    return dict(each.split("=", 1) for each in options.settings)


def test_a_process_and_a_port_for_each_broker() -> None:
    options = ClusterPlanOptions(brokers=4, port=9100, data="d", settings=("num.partitions=6",))
    plans = plan_brokers(options, "127.0.0.1:2181")
    served = [plain_serve_options(each.arguments) for each in plans]
    assert [(each.broker_id, each.port, each.data, each.zookeeper) for each in served if each is not None] == [
        (number, 9100 + number, f"d/broker-{number}", "127.0.0.1:2181") for number in range(4)
    ]
    assert settings_of(plans[0]) == {
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "num.partitions": "6",
    }
    assert plans[1].by_hand(None).startswith("ottla serve --id 1 --host 127.0.0.1 --port 9101 --data d/broker-1 ")


def test_what_is_started_again_by_hand_keeps_its_port() -> None:
    options = ClusterPlanOptions(brokers=1, port=0, data="d d", settings=("num.partitions=6",))
    zookeeper = plan_zookeeper(options)
    assert zookeeper is not None
    assert zookeeper.by_hand("[::1]:2345").startswith("ottla zookeeper --host 127.0.0.1 --port 2345 --data 'd d/")
    [broker] = plan_brokers(options, "z:1")
    assert "--id 0 --host 127.0.0.1 --port 4711 --data" in broker.by_hand("127.0.0.1:4711")
    assert command_line(options) == (
        "ottla cluster --brokers 1 --host 127.0.0.1 --port 0 --data 'd d' -c num.partitions=6"
    )
    named = ClusterPlanOptions(zookeeper="z:1/k")
    assert command_line(named).endswith("--data ottla-cluster --zookeeper z:1/k")


@pytest.mark.parametrize(("brokers", "factor", "min_isr"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2")])
def test_internal_topics_have_at_most_as_many_replicas_as_there_are_brokers(
    brokers: int, factor: str, min_isr: str
) -> None:
    found = settings_of(plan_brokers(ClusterPlanOptions(brokers=brokers), "z:1")[0])
    assert list(found.values())[:3] == [factor, factor, min_isr]


def test_given_settings_win_and_free_ports_are_any() -> None:
    options = ClusterPlanOptions(brokers=2, port=0, settings=("offsets.topic.replication.factor=1",))
    plans = plan_brokers(options, "z:1")
    assert settings_of(plans[0])["offsets.topic.replication.factor"] == "1"
    assert [plain_serve_options(each.arguments).port for each in plans] == [0, 0]  # type: ignore[union-attr]


def test_zookeeper_is_started_unless_one_is_named() -> None:
    plan = plan_zookeeper(ClusterPlanOptions(data="d", zookeeper_port=2200))
    assert plan is not None
    started = plain_zookeeper_options(plan.arguments)
    assert started is not None
    assert (started.port, started.data, plan.broker) == (2200, "d/zookeeper", None)
    assert plan_zookeeper(ClusterPlanOptions(zookeeper="z:2181/kafka")) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ClusterPlanOptions(brokers=3, port=65534), "the largest is 65535; give a smaller --port"),
        (ClusterPlanOptions(zookeeper="z:1", zookeeper_port=2181), "give one of them"),
        (ClusterPlanOptions(zookeeper_port=9093), "is the port of a broker"),
        (ClusterPlanOptions(settings=("broker.id=1",)), "brokers get the ids 0, 1"),
        (ClusterPlanOptions(settings=(" log.dirs = x",)), "give --data"),
        (ClusterPlanOptions(settings=("nonsense",)), "expected key=value"),
    ],
)
def test_options_that_cannot_be(options: ClusterPlanOptions, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        check_options(options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--brokers", "0"], "greater than or equal to 1"),
        (["-c", "num.partitions=many"], "num.partitions"),
        (["-c", "no.such.setting=1"], "no.such.setting"),
        (["--port", "65535"], "give a smaller --port"),
        (["--data", "/dev/null/x"], "choose another directory (--data)"),
    ],
)
def test_mistakes_are_reported_before_anything_is_started(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["cluster", *arguments])
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
