"""Records that the test puts into the topic, and the frames they become."""

import frames
import pytest


@pytest.fixture
def clicks(ottla_broker):
    ottla_broker.create_topic("clicks", partitions=2)
    for number in range(6):
        ottla_broker.send("clicks", f"page {number}", key=f"user {number % 3}", partition=number % 2)
    yield ottla_broker.bootstrap_servers
    ottla_broker.delete_topic("clicks")


def test_pandas(clicks):
    frame = frames.to_pandas(clicks, "clicks")
    assert list(frame["partition"]) == [0, 0, 0, 1, 1, 1]
    assert list(frame["offset"]) == [0, 1, 2, 0, 1, 2]
    assert frame.groupby("key").size().to_dict() == {b"user 0": 2, b"user 1": 2, b"user 2": 2}


def test_polars(clicks):
    frame = frames.to_polars(clicks, "clicks")
    assert frame["value"].to_list() == [b"page 0", b"page 2", b"page 4", b"page 1", b"page 3", b"page 5"]
    assert frame["key"].n_unique() == 3
