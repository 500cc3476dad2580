"""What `ottla test-broker` is told, and when it ends."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ottla.cli.broker_for_tests import parent_has_ended, parse_settings, parse_topics
from ottla.cli.command import is_pipe
from ottla.testing import TestBrokerError

pytestmark = pytest.mark.spec("U1")


def test_topics_have_one_partition_unless_said() -> None:
    assert parse_topics(["orders:3", "payments"]) == {"orders": 3, "payments": 1}


@pytest.mark.parametrize("given", ["orders:", "orders:x", "orders:0", "orders:-1", "orders:1:2", "orders:²"])
def test_wrong_topics_are_named(given: str) -> None:
    with pytest.raises(TestBrokerError, match=f"--topic {given}: expected NAME or NAME:PARTITIONS"):
        parse_topics([given])


def test_settings_are_pairs() -> None:
    assert parse_settings(["a=b", " c = d=e "]) == {"a": "b", "c": "d=e"}
    with pytest.raises(TestBrokerError, match="-c a: expected key=value"):
        parse_settings(["a"])
    with pytest.raises(TestBrokerError, match=r"-c log\.dirs=/d: give the directory as --data /d"):
        parse_settings(["log.dirs=/d"])


def test_pipes_and_sockets_are_watched_and_files_are_not(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    one, other = socket.socketpair()
    with one, other, (tmp_path / "file").open("w") as file, open(os.devnull) as null:
        assert is_pipe(reading)
        assert is_pipe(one.fileno())
        assert not is_pipe(file.fileno())
        assert not is_pipe(null.fileno())
    os.close(reading)
    os.close(writing)
    assert not is_pipe(reading)


def test_a_process_of_init_has_no_parent_to_outlive() -> None:
    assert not parent_has_ended(os.getppid())
    assert not parent_has_ended(1)
    assert parent_has_ended(2**22)
