"""`--cluster NAME`: the file of clusters, its mistakes, and what contradicts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.named_clusters import clusters_path, complete_cluster
from ottla.testing import Broker
from support.command_line import ottla
from support.documents import commands

pytestmark = pytest.mark.spec("U2")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OTTLA_CLUSTERS_FILE", str(tmp_path / "clusters.toml"))
    for name in ("OTTLA_CLUSTER", "OTTLA_BOOTSTRAP_SERVER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "clusters.toml"


def test_commands_work_with_a_named_cluster(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker({"orders": 1}) as broker:
        file.write_text('[here]\nbootstrap.servers = ["${env:WHERE}"]\nretry.backoff.ms = 50\n"client.id" = "me"\n')
        monkeypatch.setenv("WHERE", broker.bootstrap_servers)
        assert ottla("produce", "orders", "--cluster", "here", stdin="one\n").exit_code == 0
        monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "127.0.0.1:1")
        assert ottla("consume", "orders", "--from", "beginning", "-e", "--cluster", "here").stdout == "one\n"
        monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVER")
        monkeypatch.setenv("OTTLA_CLUSTER", "here")
        assert "orders" in ottla("topic", "list").stdout
        monkeypatch.setenv("OTTLA_CLUSTER", "there")
        assert "orders" in ottla("topic", "list", "-b", broker.bootstrap_servers).stdout


def test_a_topic_is_copied_to_a_named_cluster(file: Path) -> None:
    with Broker({"orders": 1}) as source, Broker({"orders": 1}) as target:
        file.write_text(
            f'[here]\nbootstrap.servers = "{source.bootstrap_servers}"\n'
            f'[there]\nbootstrap.servers = "{target.bootstrap_servers}"\n"client.id" = "copies"\n'
            'schema.registry.url = "http://127.0.0.1:1"\n'
        )
        source.send("orders", "one")
        done = ottla("copy", "orders", "orders", "--cluster", "here", "--to-cluster", "there")
        assert (done.exit_code, done.stdout) == (0, "1 record copied from orders to orders: partition 0 offset 0\n")
        assert [each.value for each in target.records("orders")] == [b"one"]
        done = ottla("copy", "orders", "orders", "-b", source.bootstrap_servers, "--to-cluster", "here")
        assert (done.exit_code, "orders would be copied onto itself" in done.stderr) == (2, True)
        done = ottla("copy", "orders", "new", "--cluster", "here", "--to-cluster", "there")
        assert (done.exit_code, "`ottla topic create new -p 1 --cluster there` makes it" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--to-bootstrap-server h:1 --to-cluster there",
            "--to-bootstrap-server and --to-cluster both say which cluster; leave one of them out",
        ),
        ("--to-cluster thre", "names no cluster thre; did you mean there?"),
    ],
)
def test_what_contradicts_the_cluster_of_a_copy(file: Path, arguments: str, message: str) -> None:
    file.write_text('[there]\nbootstrap.servers = "h:1"\n')
    done = ottla("copy", "orders", "orders", *arguments.split())
    assert (done.exit_code, done.stderr.count("\n"), message in done.stderr) == (2, 1, True), done.stderr


def test_names_are_listed_without_secrets(file: Path) -> None:
    file.write_text('[b]\nbootstrap.servers = "u:secret@h:1"\n[a]\nbootstrap.servers="${env:X}"\nclient.id="secret"\n')
    done = ottla("cluster", "names")
    assert done.stdout.splitlines() == [
        "NAME  BOOTSTRAP SERVERS  SETTINGS",
        "a     ${env:X}                  1",
        "b     ***@h:1                   -",
    ]
    rows = [json.loads(line) for line in ottla("cluster", "names", "--json").stdout.splitlines()]
    assert rows[0] == {"name": "a", "servers": "${env:X}", "settings": 1}
    assert complete_cluster("a") == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[prod]\nbootstrap.servers = "h:1"', "names no cluster prd; did you mean prod?"),
        ('[x]\nbootstrap.servers = "h:1"', "names no cluster prd; `ottla cluster names` lists them"),
        ("[prd\n", "is not TOML: "),
        ('[prd.eu]\nbootstrap.servers = "h:1"', ', line 2: [prd.eu] is a part of [prd]; write ["prd.eu"]'),
        ('[[prd]]\nbootstrap.servers = "h:1"', ", line 1: [[prd]] makes a list; write [prd]"),
        pytest.param("a = " + "[" * 5_000, "its brackets are nested too deeply", id="nested"),
        ('prd = "h:1"', ", line 1: prd is outside of a cluster; write [NAME] above it"),
        ('[a]\nclient.id = "x"\n[prd]\nclient.id = "x"', ", line 3: bootstrap.servers is missing"),
        ('[prd]\nbootstrap.servers = "h:1"\nretry.backof.ms = 1', ", line 3: retry.backof.ms is not a setting that"),
        (
            '[prd]\nbootstrap.servers = "h:1"\n[prd.retry]\nbackoff.ms = "x"',
            ", line 4: Invalid value x for configuration retry.backoff.ms",
        ),
        ('[prd]\nbootstrap.servers = "h:x"', ", line 2: bootstrap.servers: bootstrap server 'h:x' is not of the form"),
        ('[prd]\nbootstrap.servers = "${env:NOT_THERE}"', ", line 2: bootstrap.servers: the environment has no"),
        ('[prd]\nbootstrap.servers = "h:1"\nacks = "all"', ", line 3: acks is not a setting that all clients have"),
        ('[prd]\nbootstrap.servers = "h:1"\nrequest.timeout.ms = 1', "request.timeout.ms is what --timeout says"),
        (
            '[prd]\nbootstrap.servers = "h:1"\nclient.dns.lookup = "${env:PATH}"',
            ", line 3: Invalid value *** for configuration client.dns",
        ),
    ],
)
def test_mistakes_in_the_file(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    done = ottla("topic", "list", "--cluster", "prd")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert str(file) in done.stderr
    assert message in done.stderr


def test_what_contradicts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = ottla("topic", "list", "--cluster", "x")
    assert (done.exit_code, f"{file} does not exist" in done.stderr) == (2, True)
    assert ottla("cluster", "names").exit_code == 2
    assert complete_cluster("") == []
    done = ottla("topic", "list", "--cluster", "x", "-b", "h:1")
    assert (done.exit_code, "-b and --cluster both say which cluster" in done.stderr) == (2, True)
    monkeypatch.setenv("OTTLA_CLUSTER", "x")
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "h:1")
    done = ottla("topic", "list")
    assert (done.exit_code, "OTTLA_BOOTSTRAP_SERVER and OTTLA_CLUSTER both" in done.stderr) == (2, True)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OTTLA_CLUSTERS_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert clusters_path() == tmp_path / "ottla" / "clusters.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert clusters_path() == tmp_path / "home" / ".config" / "ottla" / "clusters.toml"


def test_all_commands_that_connect_take_it() -> None:
    options = {name: {each for at in command.params for each in at.opts} for name, command in commands().items()}
    connecting = {name for name, each in options.items() if "--bootstrap-server" in each}
    assert {"backfill", "profile", "pipeline run", "pipeline submit", "topic list"} <= connecting
    assert {name for name, each in options.items() if "--cluster" in each} == connecting


def test_commands_that_need_no_brokers_take_it(file: Path, tmp_path: Path) -> None:
    file.write_text('[here]\nbootstrap.servers = "127.0.0.1:1"\n')
    pipeline = tmp_path / "p.toml"
    pipeline.write_text(
        'name = "p"\ncheckpoint = "state"\n[source]\ntopics = ["t"]\n[sink]\nkind = "parquet"\npath = "table"\n'
    )
    checked = ottla("pipeline", "check", str(pipeline), "--timeout", "0.5", "--cluster", "here")
    assert checked.exit_code == 1
    assert "127.0.0.1:1" in checked.stdout
    profiled = ottla("profile", "clicks", "--kill", "--cluster", "here")
    assert (profiled.exit_code, profiled.stdout) == (2, "")
    assert "--kill is for brokers started here; leave out --bootstrap-server and --cluster" in profiled.stderr
    backfilled = ottla("backfill", "--log-dir", "x", "-t", "t", "--to", "y", "--cluster", "her")
    assert (backfilled.exit_code, backfilled.stdout) == (2, "")
    assert "did you mean here?" in backfilled.stderr
