"""Progress of queries as Spark gives it, and the events around it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

QUERY = "2a450ed1-586f-4161-a3e7-827f38dd4308"
RUN = "9ec70e87-c41b-4d27-a456-1e8132deec3a"


def source(
    end: dict[str, dict[str, int]] | int | None, latest: dict[str, dict[str, int]] | None = None, rows: int = 0
) -> dict[str, Any]:
    """One source of a progress, by the offsets where its batch ended and where the logs ended."""
    return {
        "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@127f4d98",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": end if latest is None else latest,
        "numInputRows": rows,
        "inputRowsPerSecond": 88.9,
        "processedRowsPerSecond": 1020.4,
    }


def progress(
    *sources: dict[str, Any], batch: int = 0, name: str | None = "mine", run: str = RUN, query: str = QUERY
) -> dict[str, Any]:
    """A progress of a query with these sources, as Spark 4.3 writes it."""
    return {
        "id": query,
        "runId": run,
        "name": name,
        "timestamp": "2026-11-23T07:57:40.483Z",
        "batchId": batch,
        "batchDuration": 392,
        "numInputRows": sum(each["numInputRows"] for each in sources),
        "inputRowsPerSecond": 88.9,
        "processedRowsPerSecond": 1020.4,
        "durationMs": {"addBatch": 197},
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "NoopTable", "numOutputRows": 400},
    }


def started(name: str | None = "mine", run: str = RUN, query: str = QUERY) -> Any:
    """The event of a start."""
    return SimpleNamespace(id=query, runId=run, name=name)


def progressed(document: dict[str, Any]) -> Any:
    """The event of a batch."""
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(document)))


def idled() -> Any:
    """The event of a query that waits."""
    return SimpleNamespace(id=QUERY, runId=RUN, timestamp="2026-11-23T07:57:50.871Z")


def terminated(exception: str | None = None, query: str = QUERY) -> Any:
    """The event of an end."""
    return SimpleNamespace(id=query, runId=RUN, exception=exception, errorClassOnException=None)
