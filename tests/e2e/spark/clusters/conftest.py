"""A Spark cluster of this machine, which the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.spark_cluster import SparkCluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers. A test that kills a worker starts another one."""
    with SparkCluster(tmp_path_factory.mktemp("spark")) as made:
        made.wait_until_ready()
        yield made
