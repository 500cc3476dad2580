"""Silencing of PySpark's and py4j's log output that is of no use to a user of the command line."""

from __future__ import annotations

import logging
import warnings
from pathlib import PurePath


def silence_spark() -> None:
    """Silence PySpark's warnings, and the stack traces that py4j logs when Ctrl-C ends a call to Java. py4j logs them
    through its own loggers and through the root logger.
    """
    warnings.filterwarnings("ignore", module="pyspark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in PurePath(record.pathname).parts
