"""Our error codes against Apache Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.errors import ErrorCode
from support.java import java_tool


@pytest.mark.needs_kafka
def test_codes_names_messages_and_what_is_retriable() -> None:
    printed = java_tool(str(Path(__file__).with_name("ErrorCodes.java"))).stdout.splitlines()
    ours = [f"{code:d}\t{code.name}\t{str(code.retriable).lower()}\t{code.message}" for code in ErrorCode]
    assert ours == printed
