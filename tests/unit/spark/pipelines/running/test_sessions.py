"""What sessions elsewhere are asked for. Local ones, and real clusters, are in the tests of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest
from pyspark.sql import SparkSession

from ottla.spark import local
from ottla.spark.pipelines.running.sessions import open_session
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings, SparkSettings

ZONE = "spark.sql.session.timeZone"


class PlayedBuilder:
    """Remembers what a session is asked for, and gives that."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def appName(self, name: str) -> Self:  # noqa: N802
        return self

    def master(self, url: str) -> Self:
        return self.config("master", url)

    def remote(self, url: str) -> Self:
        return self.config("remote", url)

    def config(self, name: str, value: str) -> Self:
        self.asked[name] = value
        return self

    def getOrCreate(self) -> dict[str, Any]:  # noqa: N802
        return self.asked


@pytest.mark.slow
@pytest.mark.spec("D3")
@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("where", [{"master": "spark://h:7077"}, {"remote": "sc://h"}])
@pytest.mark.parametrize(("conf", "zone"), [({}, "UTC"), ({ZONE: "Europe/Berlin"}, "Europe/Berlin")])
def test_days_are_those_of_utc_unless_the_file_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    where: dict[str, str],
    conf: dict[str, str],
    zone: str,
    attached: bool,
) -> None:
    monkeypatch.setattr(SparkSession, "builder", PlayedBuilder())
    monkeypatch.setattr(local, "register", lambda spark: spark)
    settings = PipelineSettings(
        name="p", kind=PipelineKind.archive, checkpoint=str(tmp_path), spark=SparkSettings(**where, conf=conf)
    )
    asked: Any = open_session(settings, java_home=None, folder=tmp_path, log_file=tmp_path / "log", attached=attached)
    assert asked[ZONE] == zone
