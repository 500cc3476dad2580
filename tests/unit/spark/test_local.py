"""The Java of a local session, when it ends by itself."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark import local

pytestmark = pytest.mark.spec("D3")


class EndingJava:
    """Java was killed, and its process has not ended yet: it has when it is waited for."""

    stdin = None

    def __init__(self, *, ends: bool = True) -> None:
        self._ends = ends
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if not self._ends:
            raise subprocess.TimeoutExpired("java", timeout or 0)
        self._code = -9
        return self._code

    def kill(self) -> None:
        self._ends = True


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> EndingJava:
    from pyspark import SparkContext

    made = EndingJava()
    for name in ("_active_spark_context", "_jvm"):  # a session of another test comes back
        monkeypatch.setattr(SparkContext, name, None)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=made, shutdown=lambda: None))
    return made


def test_an_error_of_the_connection_waits_for_the_end_of_java(java: EndingJava) -> None:
    assert local.how_java_ended() is None
    assert local.how_java_ended(ValueError("of the query")) is None
    assert local.how_java_ended(ConnectionRefusedError(111, "Connection refused")) == "by SIGKILL"


class Session:
    """As much of a session as is stopped."""

    _instantiatedSession: Any = None  # noqa: N815
    _activeSession: Any = None  # noqa: N815

    def stop(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_session_is_stopped_whose_java_is_ending(java: EndingJava) -> None:
    from pyspark import SparkContext

    Session._activeSession = "it"
    local.stop(Session())  # type: ignore[arg-type]
    assert SparkContext._gateway is None
    assert Session._activeSession is None


def test_another_failure_of_stopping_is_told(java: EndingJava) -> None:
    java._ends = False
    with pytest.raises(ConnectionRefusedError):
        local.stop(Session())  # type: ignore[arg-type]
