"""`ottla config` and `ottla broker` with the brokers of a test cluster: what is shown, asked, changed and refused."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.broker.views import parse_partitions
from ottla.cli.command import CommandError
from ottla.cli.config.changes import parse_changes
from ottla.cli.config.checks import risk_of_change, unknown_setting
from ottla.cli.config.views import show_settings
from ottla.cli.main import app
from ottla.cli.terminal import Terminal
from ottla.client.admin.model import ConfigEntry, ConfigOperation, ConfigResource, ConfigSynonym, ResourceType
from ottla.client.model import TopicPartition
from ottla.client.sync import Producer
from ottla.testing import Cluster

pytestmark = pytest.mark.spec("R1", "U2")


@pytest.mark.parametrize(
    ("name", "now", "new", "words"),
    [
        ("unclean.leader.election.enable", "false", "true", "committed records are lost"),
        ("unclean.leader.election.enable", "true", "false", None),
        ("retention.ms", "1000", "999", "older records are deleted"),
        ("retention.ms", "-1", "999", "older records are deleted"),
        ("retention.ms", None, "999", "older records are deleted"),
        ("retention.ms", "1000", None, "if what comes back is less"),
        ("retention.ms", "1000", "1001", None),
        ("retention.bytes", "1000", "-1", None),
        ("log.retention.bytes", "1000", "x", None),
        ("message.max.bytes", "1000", "999", "larger batches"),
        ("cleanup.policy", "delete", "delete,compact", "only the newest are kept"),
        ("cleanup.policy", "compact", "delete", "beyond the retention"),
        ("cleanup.policy", "compact, delete", "compact", None),
        ("min.insync.replicas", "2", "1", "when fewer replicas have them"),
        ("min.insync.replicas", "1", "2", "acks=all are refused"),
        ("leader.replication.throttled.rate", None, "0", "not copied at all"),
        ("segment.ms", "1000", "1", None),
    ],
)
def test_what_needs_care(name: str, now: str | None, new: str | None, words: str | None) -> None:
    reason = risk_of_change(name, now, new)
    assert reason is None if words is None else reason is not None and words in reason


def test_names_that_may_be_mistyped() -> None:
    assert unknown_setting("retention.ms", of_topic=True) is None
    assert unknown_setting("log.retention.ms", of_topic=False) is None
    assert unknown_setting("listener.name.internal.ssl.keystore.location", of_topic=False) is None
    assert unknown_setting("retentoin.ms", of_topic=True) == "a topic has no setting retentoin.ms (is it retention.ms?)"
    assert unknown_setting("xyz", of_topic=False) == "a broker has no setting xyz"


def test_changes_on_the_command_line() -> None:
    assert parse_changes(["a=1", "b += x,y", "c-=z", " d = e=f "]) == [
        ConfigOperation("set", "a", "1"),
        ConfigOperation("append", "b", "x,y"),
        ConfigOperation("subtract", "c", "z"),
        ConfigOperation("set", "d", "e=f"),
    ]
    for wrong in ("a", "=1", "+=1"):
        with pytest.raises(CommandError, match="expected key=value"):
            parse_changes([wrong])


def test_changes_of_a_file(tmp_path: Path) -> None:
    """Other processes see the arguments of a command, so secrets are in a file."""
    file = tmp_path / "changes.properties"
    file.write_text('# for one listener\nlistener.name.a.plain.sasl.jaas.config=Module required user_a="b=c";\n')
    secret = ConfigOperation("set", "listener.name.a.plain.sasl.jaas.config", 'Module required user_a="b=c";')
    assert parse_changes([], str(file)) == [secret]
    assert parse_changes(["a=1"], str(file)) == [secret, ConfigOperation("set", "a", "1")]
    with pytest.raises(CommandError, match="No such file"):
        parse_changes([], str(tmp_path / "absent"))
    with pytest.raises(CommandError, match="name a setting"):
        parse_changes([])


def test_partitions_on_the_command_line() -> None:
    assert parse_partitions(["a", "b:3"]) == ["a", TopicPartition("b", 3)]
    for wrong in (":1", "a:", "a:b"):
        with pytest.raises(CommandError, match="the number of a partition"):
            parse_partitions([wrong])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, {"orders": 2}) as cluster:
        yield cluster


def ottla(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "-b", cluster.bootstrap_servers])


def rows(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_is_harmless_is_done_at_once(cluster: Cluster) -> None:
    done = ottla(cluster, "config", "set", "--broker", "1", "--topic", "orders", "log.cleaner.threads=2")
    assert done.exit_code == 1, "a topic has no cleaner: nothing is changed"
    assert cluster.broker(1).config.get_int("log.cleaner.threads") == 1
    done = ottla(cluster, "config", "set", "--broker", "1", "--broker", "2", "log.cleaner.threads=2")
    assert (done.exit_code, done.stdout.splitlines()[-2:]) == (0, ["changed: broker 1", "changed: broker 2"])
    (row,) = rows(ottla(cluster, "config", "describe", "log.cleaner.threads", "--broker", "1", "--json"))
    assert (row["value"], row["source"]) == ("2", "DYNAMIC_BROKER_CONFIG")
    assert row["synonyms"][-1] == {"name": "log.cleaner.threads", "value": "1", "source": "DEFAULT_CONFIG"}
    done = ottla(cluster, "config", "unset", "--broker", "1", "--broker", "2", "log.cleaner.threads", "--json")
    assert [(each["now"], each["new"], each["changed"]) for each in rows(done)] == [("2", None, True)] * 2


def test_what_needs_care_is_shown_first(cluster: Cluster) -> None:
    shrink = ("config", "set", "--topic", "orders", "retention.ms=100000", "cleanup.policy+=compact")
    done = ottla(cluster, *shrink)
    assert done.exit_code == 1
    assert "older records are deleted" in done.stdout
    assert "nothing was changed: --yes does it" in done.stderr
    shown = ottla(cluster, *shrink, "--json")
    assert [json.loads(line)["changed"] for line in shown.stdout.splitlines()] == [False, False]
    made = rows(ottla(cluster, *shrink, "--json", "--yes"))
    assert [(each["name"], each["new"], each["changed"]) for each in made] == [
        ("retention.ms", "100000", True),
        ("cleanup.policy", "delete,compact", True),
    ]
    assert {row["name"] for row in rows(ottla(cluster, "config", "describe", "-t", "orders", "--json"))} == {
        "cleanup.policy",
        "retention.ms",
    }
    assert ottla(cluster, "config", "unset", "-t", "orders", "cleanup.policy").exit_code == 0


def test_defaults_of_all_brokers_are_compared_with_what_brokers_have(cluster: Cluster) -> None:
    done = ottla(cluster, "config", "set", "--broker-defaults", "message.max.bytes=9000")
    assert (done.exit_code, "1048588" in done.stdout, "larger batches" in done.stdout) == (1, True, True)
    assert ottla(cluster, "config", "set", "--broker-defaults", "message.max.bytes=2000000").exit_code == 0
    done = ottla(cluster, "config", "unset", "--broker-defaults", "message.max.bytes", "--json", "--yes")
    assert [(row["now"], row["care"] is None) for row in rows(done)] == [("2000000", False)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "orders", "retention.mss"], "a topic has no setting retention.mss (is it retention.ms?)"),
        (["--topic", "orders", "segment.bytes"], "segment.bytes is not set there, and has its default"),
        (["--broker", "2", "log.cleaner.backoff.ms"], "not set there but for all brokers: `ottla config unset"),
        (
            ["--broker", "2", "ottla.flush.interval.ms"],
            "has its default; nothing was changed, and `ottla",
        ),
        (["--broker-defaults", "message.max.bytes"], "all brokers: Invalid config(s): message.max.bytes: "),
        (["--topic", "orders", "flush.ms", "segment.bytes"], "topic orders: Invalid config(s): segment.bytes: "),
    ],
)
def test_what_is_not_set_cannot_be_taken_back(cluster: Cluster, arguments: list[str], words: str) -> None:
    """As with Apache Kafka's `kafka-configs --delete-config`: `Invalid config(s): …`, and nothing is changed."""
    ottla(cluster, "config", "set", "--broker-defaults", "log.cleaner.backoff.ms=14000")
    ottla(cluster, "config", "set", "--topic", "orders", "flush.ms=100000")
    done = ottla(cluster, "config", "unset", *arguments, "--yes")
    assert (done.exit_code, done.stdout, words in done.stderr) == (1, "", True), done.output
    (row,) = rows(ottla(cluster, "config", "describe", "flush.ms", "--topic", "orders", "--json"))
    assert row["value"] == "100000", "the others of the command are left, too"
    assert ottla(cluster, "config", "unset", "--broker-defaults", "log.cleaner.backoff.ms").exit_code == 0
    assert ottla(cluster, "config", "unset", "--topic", "orders", "flush.ms").exit_code == 0


@pytest.mark.parametrize("whose", [["--broker", "1"], ["--broker-defaults"]], ids=["broker", "defaults"])
def test_an_unknown_setting_of_a_broker_is_asked_about_first(cluster: Cluster, whose: list[str]) -> None:
    """Brokers take any name, as those of Apache Kafka do."""
    given = ("config", "set", *whose, "log.retentoin.ms=1", "log.cleaner.threads=1")
    done = ottla(cluster, *given)
    assert (done.exit_code, done.stderr) == (1, "ottla config: nothing was changed: --yes does it\n")
    assert "a broker has no setting log.retentoin.ms (is it log.retention.ms?)" in done.stdout
    shown = ottla(cluster, *given, "--json")
    assert [(each["care"] is None, each["changed"]) for each in map(json.loads, shown.stdout.splitlines())] == [
        (False, False),
        (True, False),
    ]
    assert [each["changed"] for each in rows(ottla(cluster, *given, "--yes", "--json"))] == [True, True]
    again = rows(ottla(cluster, "config", "set", *whose, "log.retentoin.ms=2", "--yes", "--json"))
    assert [each["changed"] for each in again] == [True]
    names = ("log.retentoin.ms", "log.cleaner.threads")
    assert ottla(cluster, "config", "unset", *whose, *names).exit_code == 0


@pytest.mark.parametrize("whose", [["--broker", "1"], ["--broker-defaults"]], ids=["broker", "defaults"])
def test_a_setting_without_effect_is_said_to_be_one(cluster: Cluster, whose: list[str]) -> None:
    given = ("config", "set", *whose, "num.io.threads=9", "num.replica.fetchers=2", "background.threads=11")
    done = ottla(cluster, *given)
    assert (done.exit_code, done.stderr) == (
        0,
        "ottla config: accepted, but without effect on brokers of ottla (docs/settings.md): "
        "num.io.threads, background.threads\n",
    )
    names = ("num.io.threads", "num.replica.fetchers", "background.threads")
    done = ottla(cluster, "config", "unset", *whose, *names)
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_topic_with_a_mistyped_setting_is_not_made(cluster: Cluster) -> None:
    hint = "Unknown topic config name: retentoin.ms (INVALID_CONFIG); is it retention.ms? docs/settings.md"
    done = ottla(cluster, "topic", "create", "new", "-c", "retentoin.ms=1")
    assert (done.exit_code, hint in done.stderr) == (1, True), done.stderr
    done = ottla(cluster, "topic", "alter", "orders", "-c", "retentoin.ms=1", "--yes")
    assert (done.exit_code, hint in done.stderr) == (1, True), done.stderr


def test_an_alteration_takes_back_only_what_is_set(cluster: Cluster) -> None:
    done = ottla(cluster, "topic", "alter", "orders", "--delete-config", "segment.mss", "-p", "3", "--yes")
    assert (done.exit_code, "topic orders: Invalid config(s): segment.mss: " in done.stderr) == (1, True), done.output
    assert "orders  2 partitions" in ottla(cluster, "topic", "describe", "orders").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["set", "a=1"], 2, "say whose settings"),
        (["set", "--topic", "orders", "a=1", "a=2"], 2, "a is named twice"),
        (["set", "--topic", "orders", "retention.ms=x"], 1, "Not a number of type LONG"),
        (["set", "--topic", "orders", "bogus=1"], 1, "bogus (INVALID_CONFIG); docs/settings.md has the settings"),
        (["set", "--topic", "orders", "retentoin.ms=1"], 1, "(INVALID_CONFIG); is it retention.ms? docs/settings.md"),
        (["set", "--topic", "nowhere", "retention.ms=1"], 1, "topic nowhere does not exist"),
        (["set", "--broker", "7", "message.max.bytes=1"], 1, "has no broker 7"),
        (["set", "--broker", "1", "zookeeper.connect=x"], 1, "Cannot update these configs dynamically"),
        (["describe", "--topic", "nowhere"], 1, "topic nowhere does not exist"),
        (["describe", "--broker", "7"], 1, "has no broker 7"),
        (["describe", "--broker", "1", "nonsense"], 1, "broker 1 has no setting nonsense"),
    ],
)
def test_refusals(cluster: Cluster, arguments: list[str], code: int, words: str) -> None:
    done = ottla(cluster, "config", *arguments)
    assert (done.exit_code, words in done.stderr) == (code, True), done.output


@pytest.mark.parametrize("command", [["describe"], ["set", "retention.ms=1", "--yes"], ["unset", "retention.ms"]])
def test_a_cluster_that_does_not_answer(command: list[str]) -> None:
    done = CliRunner().invoke(app, ["config", *command, "--topic", "t", "-b", "127.0.0.1:1", "--timeout", "0.2"])
    assert (done.exit_code, "cannot connect to 127.0.0.1:1" in done.stderr) == (2, True)


def test_brokers_and_their_producers(cluster: Cluster) -> None:
    listed = rows(ottla(cluster, "broker", "list", "--json"))
    assert [(row["broker"], row["replicas"]) for row in listed] == [(0, 2), (1, 2), (2, 2)]
    ottla(cluster, "config", "set", "--broker", "2", "leader.replication.throttled.rate=1000000")
    (described,) = rows(ottla(cluster, "broker", "describe", "2", "--json"))
    assert [(each["name"], each["value"]) for each in described["settings"]] == [
        ("leader.replication.throttled.rate", "1000000")
    ]
    told = ottla(cluster, "broker", "describe", "2").stdout
    assert "leader.replication.throttled.rate" in told
    assert "at the start only" not in told
    assert "broker 9 is not there" in ottla(cluster, "broker", "describe", "9").stderr
    with Producer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True) as producer:
        producer.send("orders", b"x", b"k", partition=1).result()
    (found,) = rows(ottla(cluster, "broker", "producers", "orders", "--json"))
    assert (found["partition"], found["last_sequence"]) == (1, 0)
    assert "no producers" in ottla(cluster, "broker", "producers", "orders:0").stdout
    assert ottla(cluster, "broker", "producers", "orderz").exit_code == 1


def test_a_broker_that_is_alive_is_not_forgotten(cluster: Cluster) -> None:
    assert "--yes does it" in ottla(cluster, "broker", "unregister", "1").stderr
    done = ottla(cluster, "broker", "unregister", "1", "--yes")
    assert (done.exit_code, "Broker 1 is alive" in done.stderr) == (1, True)
    assert "it has left no trace" in ottla(cluster, "broker", "unregister", "77", "--yes").stderr


def test_a_value_in_another_unit_has_its_name() -> None:
    hidden = (
        ConfigSynonym("log.retention.ms", "-1", "STATIC_BROKER_CONFIG"),
        ConfigSynonym("log.retention.ms", "7", "STATIC_BROKER_CONFIG"),
        ConfigSynonym("log.retention.hours", "168", "DEFAULT_CONFIG"),
    )
    output = io.StringIO()
    entry = ConfigEntry("retention.ms", "-1", "STATIC_BROKER_CONFIG", synonyms=hidden)
    show_settings(Terminal(output, width=None, colours=False), ConfigResource(ResourceType.TOPIC, "orders"), [entry])
    assert "7 (file), log.retention.hours=168 (default)" in output.getvalue()
