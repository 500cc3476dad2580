"""Silencing of PySpark's and py4j's log output that is of no use to a user of the command line."""

from __future__ import annotations

import logging
import socketserver
import sys
import warnings
from pathlib import PurePath

EXCEPTION_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark to which its exceptions give themselves when they are made."""


def silence_spark() -> None:
    """Silence PySpark's warnings, and the stack traces of a Java that Ctrl-C ends.

    py4j logs them through its own loggers and through the root logger. PySpark's server for accumulators writes one to
    standard error when its connection to Java ends while an update is awaited. Its exceptions about SQL log themselves
    as they are made, with the SQL and Java's stack; who catches them says what matters.
    """
    warnings.filterwarnings("ignore", module="pyspark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)
    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    for name in EXCEPTION_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _quiet_about_ended_java  # type: ignore[method-assign,assignment]


def _quiet_about_ended_java(server: socketserver.BaseServer, request: object, client_address: object) -> None:
    """Handle an error of a connection: do nothing where the other end has gone, else as before."""
    if not isinstance(sys.exception(), EOFError | ConnectionError):
        socketserver.BaseServer.handle_error(server, request, client_address)  # type: ignore[arg-type]


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in PurePath(record.pathname).parts
