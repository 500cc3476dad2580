"""Silence where py4j would speak, and only there."""

from __future__ import annotations

import logging
import socket
import struct
import warnings
from collections.abc import Iterator

import pytest
from pyspark import accumulators
from pyspark.logger import PySparkLogger

from ottla.spark.noise import EXCEPTION_LOGGERS, _not_of_py4j, silence_spark


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    level = logging.getLogger("py4j").level
    servers = (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer)
    with warnings.catch_warnings():
        yield
    logging.getLogger("py4j").setLevel(level)
    logging.getLogger().removeFilter(_not_of_py4j)
    for server in servers:
        vars(server).get("handle_error") is None or delattr(server, "handle_error")


def said(path: str, logger: str = "root") -> bool:
    """Whether a record that code at `path` gives to a logger gets past it."""
    record = logging.LogRecord(logger, logging.ERROR, path, 1, "KeyboardInterrupt while sending command.", (), None)
    chosen = logging.getLogger(None if logger == "root" else logger)
    return chosen.isEnabledFor(record.levelno) and bool(chosen.filter(record))


def test_py4j_is_silent_whichever_logger_it_uses() -> None:
    gateway = "/usr/lib/python3/site-packages/py4j/java_gateway.py"
    assert said(gateway)
    silence_spark()
    assert not said(gateway)
    assert not said(gateway, "py4j.clientserver")


def test_others_are_heard() -> None:
    silence_spark()
    assert said("/usr/lib/python3/site-packages/ottla/cli/serve.py")
    assert said("/usr/lib/python3/site-packages/ottla/broker/server.py", "ottla.broker")


@pytest.mark.parametrize("name", EXCEPTION_LOGGERS)
def test_pyspark_s_exceptions_do_not_log_themselves(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They would show the SQL, and with it what must not be shown."""
    silence_spark()
    PySparkLogger.getLogger(name).exception("[PARSE_SYNTAX_ERROR] near hunter2", errorClass="PARSE_SYNTAX_ERROR")
    assert "hunter2" not in "".join(capsys.readouterr())


def test_twice_is_once() -> None:
    silence_spark()
    silence_spark()
    assert logging.getLogger().filters.count(_not_of_py4j) == 1


@pytest.mark.parametrize(
    ("sent", "heard"),
    [(b"", False), (struct.pack("!i", 1), False), (struct.pack("!i", 1) + struct.pack("!i", 3) + b"abc", True)],
    ids=["nothing", "half an update", "no update"],
)
def test_the_end_of_java_is_no_error_of_the_accumulators(
    sent: bytes, heard: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Java's end closes the connection, whatever was on its way; what is no update is still reported."""
    silence_spark()
    token = "secret"
    with (
        accumulators.AccumulatorTCPServer(("127.0.0.1", 0), accumulators.UpdateRequestHandler, token) as server,
        socket.create_connection(server.server_address) as java,
    ):
        java.sendall(token.encode() + struct.pack("!i", 0) + sent)
        java.shutdown(socket.SHUT_WR)
        server.handle_request()
    assert ("Traceback" in capsys.readouterr().err) == heard
