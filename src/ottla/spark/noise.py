"""Silencing of PySpark's and py4j's log output that is of no use to a user of the command line."""

from __future__ import annotations

import logging
import warnings
from pathlib import PurePath


def silence_spark() -> None:
    """Leave out PySpark's warnings, and what py4j says of a call to Java that Ctrl-C ended: a stack.

    py4j says it through its own loggers and through the root logger alike.
    """
    warnings.filterwarnings("ignore", module="pyspark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in PurePath(record.pathname).parts
