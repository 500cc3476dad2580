"""The Spark source and sink over TLS with a login: nothing that Spark shows or writes has a password or a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spec("S6", "D1")

PASSWORD = "a-password-of-this-test"
KEY = "PRIVATE KEY"
PLAN_MODES = ("simple", "extended", "codegen", "cost", "formatted")


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker({"in": 1, "out": 1}, tls=True, sasl={"alice": PASSWORD}) as broker:
        broker.send("in", "x")
        yield broker


@pytest.fixture
def options(secured: Broker) -> dict[str, str]:
    """With the password as a setting of its own."""
    return {f"kafka.{name}": value for name, value in secured.client_settings(mechanism="SCRAM-SHA-512").items()}


def with_jaas(options: dict[str, str]) -> dict[str, str]:
    """The same login in `sasl.jaas.config`."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = {"kafka.sasl.jaas.config": f'{module} required username="alice" password="{PASSWORD}";'}
    return login | {name: each for name, each in options.items() if each not in ("alice", PASSWORD)}


def is_clean(text: str) -> bool:
    return PASSWORD not in text and KEY not in text


def plans(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    """All that `explain` prints."""
    capsys.readouterr()
    for mode in PLAN_MODES:
        frame.explain(mode=mode)
    return capsys.readouterr().out


def test_nothing_that_spark_shows_has_a_secret(
    spark: SparkSession, secured: Broker, options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = spark.read.format("ottla").options(**options).option("subscribe", "in").load()
    shown = plans(read, capsys)
    read.select("value").write.format("ottla").options(**options).option("topic", "out").mode("append").save()
    query = (
        spark.readStream.format("ottla")
        .options(**options)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("ottla")
        .options(**with_jaas(options), topic="out", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(secured.records("out")) == 2
    query.explain(True)
    shown += capsys.readouterr().out + str(query.lastProgress)
    written = ", ".join(f"`{name}` {value!r}" for name, value in with_jaas(options).items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING ottla OPTIONS ({written}, subscribe 'in')")
    described = spark.sql(f"EXPLAIN EXTENDED CREATE OR REPLACE TEMPORARY VIEW v USING ottla OPTIONS ({written})")
    shown += described.collect()[0][0] + plans(spark.table("v"), capsys)
    assert "ottla" in shown
    assert is_clean(shown)
    for file in (tmp_path / "checkpoint").rglob("*"):
        assert file.is_dir() or is_clean(file.read_text("latin-1")), file


def test_a_refused_login_and_wrong_options_name_no_secret(
    spark: SparkSession, options: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = {name: value.replace("alice", "eve") for name, value in options.items()}
    with pytest.raises(Exception, match="eve") as refused:
        spark.read.format("ottla").options(**wrong).option("subscribe", "in").load().collect()
    assert is_clean(str(refused.value))
    with pytest.raises(Exception, match="acks") as unknown:
        spark.read.format("ottla").options(**options, subscribe="in").option("kafka.acks", "9").load().collect()
    assert is_clean(str(unknown.value))
    assert is_clean("".join(capfd.readouterr()))
