from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.played_s3 import PlayedS3, played_s3


@pytest.fixture(scope="module")
def s3() -> Iterator[PlayedS3]:
    with played_s3() as played:
        yield played
