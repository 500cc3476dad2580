from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.played_s3 import PlayedS3, played_s3
from support.staged_tables import Lake


@pytest.fixture(scope="module")
def s3() -> Iterator[PlayedS3]:
    with played_s3() as played:
        yield played


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table with a log, of each kind."""
    return Lake(tmp_path, request.param)
