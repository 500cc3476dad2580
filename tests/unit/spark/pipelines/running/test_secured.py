"""Pipelines whose clusters want TLS and logins, another set for each end; no output has a password."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.spark.connection import ConnectionOptions
from ottla.spark.pipelines.mirroring.ends import MirrorEnd, check_two_clusters, target_of
from ottla.spark.pipelines.running.checks import check_pipeline
from ottla.spark.pipelines.running.status import read_status
from ottla.spark.pipelines.settings.file import load_pipeline
from ottla.testing import Broker
from support.command_line import ottla

pytestmark = pytest.mark.spec("D3", "S6")

SECRETS = ("west-secret", "east-secret")


@pytest.fixture(scope="module")
def west() -> Iterator[Broker]:
    with Broker({"orders": 2}, tls=True, sasl={"wanda": SECRETS[0]}) as broker:
        broker.send("orders", "4 apples")
        yield broker


@pytest.fixture(scope="module")
def east() -> Iterator[Broker]:
    with Broker({"letters": 1}, sasl={"emma": SECRETS[1]}) as broker:
        yield broker


def table(title: str, settings: Mapping[str, str], before: str = "") -> str:
    """A table of the file; the address is a key of its own, and passwords are written plainly."""
    rows = (f"{json.dumps(before + name)} = {json.dumps(each)}" for name, each in settings.items())
    return "\n".join((title, *(row for row in rows if "bootstrap.servers" not in row), ""))


@pytest.fixture
def mirror_file(west: Broker, east: Broker, tmp_path: Path) -> Path:
    path = tmp_path / "mirror.toml"
    path.write_text(
        f'name = "m"\nkind = "mirror"\ncheckpoint = "checkpoint"\n[mirror]\nsource_alias = "west"\n'
        f'target_alias = "east"\nsource_bootstrap_servers = "{west.bootstrap_servers}"\n'
        f'target_bootstrap_servers = "{east.bootstrap_servers}"\ntopics = "orders"\n'
        + table("[mirror.source_settings]", west.client_settings())
        + table(
            "[mirror.target_settings]", {**east.client_settings(mechanism="SCRAM-SHA-256"), "compression.type": "zstd"}
        )
    )
    return path


def test_both_ends_of_a_mirror_are_reached_by_their_own_settings(mirror_file: Path) -> None:
    settings = load_pipeline(mirror_file, {})
    assert settings.mirror is not None
    check_two_clusters(settings.mirror)
    with target_of(settings.mirror).producer() as producer:
        producer.send("west.orders", value=b"x").result()
    assert [(each.what, each.passed) for each in check_pipeline(settings, 20_000, 0)] == [
        ("packages", True),
        ("checkpoint", True),
        ("runner", True),
        ("source west", True),
        ("target east", True),
    ]
    assert read_status(settings, 20_000).problems == ()


def test_a_topic_of_dead_letters_is_reached_as_the_source_is(west: Broker, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        f'name = "p"\ncheckpoint = "checkpoint"\n[source]\nbootstrap_servers = "{west.bootstrap_servers}"\n'
        'topics = ["orders"]\nvalue_format = "json"\nschema = "id BIGINT"\n'
        + table("[source.options]", west.client_settings(), "kafka.")
        + '[sink]\nkind = "console"\n[dead_letters]\nkind = "topic"\ntopic = "letters"\n[dead_letters.options]\n'
        '"kafka.acks" = "all"\n'
    )
    found = {each.what: each for each in check_pipeline(load_pipeline(path, {}), 20_000, 0)}
    assert found["dead letters"].passed, found["dead letters"].detail
    assert all(secret not in repr(found) for secret in SECRETS)


@pytest.mark.parametrize("command", ["check", "status"])
def test_no_output_has_a_password(west: Broker, mirror_file: Path, command: str) -> None:
    mirror_file.write_text(mirror_file.read_text().replace('"sasl.username" = "wanda"', '"sasl.username" = "eve"'))
    for json_too in ((), ("--json",)):
        done = ottla("pipeline", command, str(mirror_file), *json_too)
        assert done.exit_code == {"check": 1, "status": 2}[command]
        assert "eve" in done.output
        assert not any(secret in done.output for secret in (*SECRETS, "PRIVATE KEY"))


def test_representations_have_no_settings() -> None:
    settings = {"sasl.password": SECRETS[0]}
    for shown in (ConnectionOptions("h:1", settings), MirrorEnd("h:1", settings)):
        assert SECRETS[0] not in repr(shown)


def test_a_named_cluster_reaches_sources_that_name_no_brokers(
    west: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = west.client_settings()
    clusters, path = tmp_path / "clusters.toml", tmp_path / "p.toml"
    clusters.write_text(
        "".join(("[west]\n", *(f"{json.dumps(n)} = {json.dumps(each)}\n" for n, each in settings.items())))
    )
    monkeypatch.setenv("OTTLA_CLUSTERS_FILE", str(clusters))
    path.write_text(
        'name = "p"\ncheckpoint = "checkpoint"\n[source]\ntopics = ["orders"]\n[sink]\nkind = "topic"\ntopic = "x"\n'
    )
    done = ottla("pipeline", "check", str(path), "--cluster", "west")
    assert done.exit_code == 0, done.output
    done = ottla("pipeline", "submit", str(path), "--cluster", "west")
    assert done.exit_code == 2
    assert "the named cluster has settings beside its address" in done.output
    assert SECRETS[0] not in done.output
