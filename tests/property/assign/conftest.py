"""What the tests of the assignors share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.assignor_oracle import AssignorOracle


@pytest.fixture(scope="session")
def assignor_oracle() -> Iterator[AssignorOracle]:
    """Java's own assignors. Tests that use it are marked needs_kafka."""
    with AssignorOracle() as oracle:
        yield oracle
