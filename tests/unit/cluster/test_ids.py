from __future__ import annotations

from uuid import UUID

import pytest

from ottla.cluster.ids import format_uuid, parse_uuid


def test_ids_are_written_as_kafka_writes_them() -> None:
    value = UUID("335fae2e-682a-455d-8193-214cb02b018e")
    assert format_uuid(value) == "M1-uLmgqRV2BkyFMsCsBjg"
    assert parse_uuid("M1-uLmgqRV2BkyFMsCsBjg") == value


@pytest.mark.parametrize(
    "text", ["", "M1-uLmgqRV2BkyFMsCsBj", "M1+uLmgqRV2BkyFMsCsBjg!", "M1 uLmgqRV2BkyFMsCsBjg", "AAAA"]
)
def test_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        parse_uuid(text)
