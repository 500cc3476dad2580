"""What sessions elsewhere are asked for, and what is said where nobody answers. Real ones are in the tests of Spark."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ottla.spark import local
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.running import sessions
from ottla.spark.pipelines.running.sessions import FILE_MANAGER, LOCAL_FILES, open_session
from ottla.spark.pipelines.settings.model import (
    PipelineKind,
    PipelineSettings,
    SourceSettings,
    SparkSettings,
    StepSettings,
    TableSinkSettings,
)
from support.ports import LOOPBACK, free_port

pytestmark = [pytest.mark.slow, pytest.mark.spec("D3")]

ZONE = "spark.sql.session.timeZone"


class PlayedBuilder:
    """Remembers what a session is asked for, and gives that."""

    def __init__(self) -> None:
        self.arguments: dict[str, str] = {}

    def appName(self, name: str) -> Self:  # noqa: N802
        return self

    def remote(self, url: str) -> Self:
        return self.config("remote", url)

    def config(self, name: str, value: str) -> Self:
        self.arguments[name] = value
        return self

    def getOrCreate(self) -> dict[str, str]:  # noqa: N802
        return self.arguments


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session is what it was asked for; masters and servers answer."""
    monkeypatch.setattr(SparkSession, "builder", PlayedBuilder())
    monkeypatch.setattr(local, "register", lambda spark: spark)
    monkeypatch.setattr(local, "cluster_session", lambda name, master, *, conf, **_: conf)
    for check in ("_check_master", "_check_server"):
        monkeypatch.setattr(sessions, check, lambda address: None)


def _open(folder: Path, *, attached: bool = False, **spark: Any) -> Any:
    settings = PipelineSettings(
        name="p", kind=PipelineKind.archive, checkpoint=str(folder), spark=SparkSettings(**spark)
    )
    return open_session(settings, java_home=None, folder=folder, log_file=folder / "log", attached=attached)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize(
    "where",
    [{"master": "spark://h:7077"}, {"master": "spark://h:7077", "attached": True}, {"remote": "sc://h"}],
)
@pytest.mark.parametrize(("conf", "zone"), [({}, "UTC"), ({ZONE: "Europe/Berlin"}, "Europe/Berlin")])
def test_days_are_those_of_utc_unless_the_file_says_otherwise(
    tmp_path: Path, where: dict[str, Any], conf: dict[str, str], zone: str
) -> None:
    assert _open(tmp_path, conf=conf, **where)[ZONE] == zone


EVENTS = SourceSettings(
    name="events",
    bootstrap_servers="b:1",
    group_id="g",
    topics=("t",),
    value_format="json",
    schema="id BIGINT, at DATE",
)
PLAIN = "SELECT id, at AS day FROM events WHERE id > 3"


def _session_arguments(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sql: str = PLAIN, **settings: Any
) -> dict[str, Any]:
    """What is asked of a local session for an archive with this SQL."""
    monkeypatch.setattr(local, "session", lambda name, **arguments: arguments)
    monkeypatch.setattr(sessions, "use_if_known", lambda session, conf: session.update(checked=conf))
    archive = PipelineSettings(
        **{
            "name": "p",
            "kind": PipelineKind.archive,
            "checkpoint": str(folder),
            "sources": (EVENTS,),
            "steps": (StepSettings(name="rows", sql=sql),),
            "sink": TableSinkSettings(format="parquet", path=str(folder)),
            **settings,
        }
    )
    found: Any = open_session(archive, java_home=None, folder=folder, log_file=folder / "log", attached=False)
    return dict(found)


def test_a_local_session_has_the_cores_and_the_memory_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _session_arguments(tmp_path, monkeypatch, spark=SparkSettings(master="local[3]", memory="2g"))
    assert (arguments["cores"], arguments["memory"]) == (3, "2g")


@pytest.mark.parametrize(
    ("sql", "settings"),
    [
        (PLAIN, {}),
        (PLAIN, {"spark": SparkSettings(conf={ZONE: "UTC"})}),
        ("", {"kind": PipelineKind.mirror, "sources": (), "steps": (), "sink": None}),
    ],
)
def test_java_compiles_once_where_rows_stay_out_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, settings: dict[str, Any]
) -> None:
    arguments = _session_arguments(tmp_path, monkeypatch, sql, **settings)
    assert arguments["java_computes"] is False
    assert arguments["checked"].keys() == {FILE_MANAGER, LOCAL_FILES} <= arguments["conf"].keys()


@pytest.mark.parametrize(
    ("sql", "settings"),
    [
        ("SELECT at, count(*) AS many FROM events GROUP BY at", {}),
        (PLAIN, {"output_mode": "complete"}),
        (PLAIN, {"spark": SparkSettings(conf={"spark.sql.caseSensitive": "true"})}),
        (PLAIN, {"sources": (EVENTS, replace(EVENTS, name="others", topics=("u",)))}),
        # What the pipeline is refused for is said when it starts.
        (PLAIN, {"sources": (replace(EVENTS, schema="id NOTHING"),)}),
        (PLAIN, {"sources": (replace(EVENTS, options={"subscribe": "u"}),)}),
        # A registry is not asked twice.
        (PLAIN, {"sources": (replace(EVENTS, options={"SchemaRegistry": "http://h:1"}),)}),
    ],
)
def test_java_compiles_twice_where_rows_go_through_it_or_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, settings: dict[str, Any]
) -> None:
    arguments = _session_arguments(tmp_path, monkeypatch, sql, **settings)
    assert arguments["java_computes"] is True
    assert not {FILE_MANAGER, LOCAL_FILES} & arguments["conf"].keys()


@pytest.mark.usefixtures("played")
def test_a_client_of_spark_connect_needs_no_py4j(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [each for each in sys.modules if each.partition(".")[0] == "py4j"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert _open(tmp_path, remote="sc://h")["remote"] == "sc://h"


def test_no_master_answers(tmp_path: Path) -> None:
    first, second = f"{LOOPBACK}:{free_port()}", f"{LOOPBACK}:{free_port()}"
    with pytest.raises(PipelineError) as refused:
        _open(tmp_path, master=f"spark://{first},{second}")
    assert str(refused.value) == (
        f"no master of spark://{first},{second} answers ({first}: Connection refused, {second}: Connection refused); "
        "check [spark] master and that it runs"
    )


def test_no_server_of_spark_connect_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark goes on trying for ten minutes, and says nothing."""
    monkeypatch.setattr(sessions, "ANSWER_TIMEOUT_S", 1.0)
    address = f"{LOOPBACK}:{free_port()}"
    with pytest.raises(PipelineError) as refused:
        _open(tmp_path, remote=f"sc://{address}/;user_id=me")
    assert str(refused.value) == (
        f"no server of Spark Connect answers at {address} within 1 s; check [spark] remote and that it runs"
    )


def test_an_address_of_spark_connect_that_is_none_is_shown_without_its_token(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no session on sc://h/x: .*; check \[spark\]") as refused:
        _open(tmp_path, remote="sc://h/x;token=hunter2")
    assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("played")
def test_what_java_raises_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Py4JError("An error occurred\n: java.lang.IllegalStateException: a stopped SparkContext.\n\tat x")

    monkeypatch.setattr(local, "cluster_session", refuse)
    with pytest.raises(PipelineError) as refused:
        _open(tmp_path, master="spark://h:7077")
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("no session on spark://h:7077: ")
