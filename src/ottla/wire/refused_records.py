"""Why a replica could not write the last records that came: a tagged field of ottla in Kafka's DescribeLogDirs.

It stands at a partition of a log directory, as UTF-8; see `ottla.wire.lost_records` for such fields.
"""

from __future__ import annotations

from typing import Final

#: The tag of the field at a partition of DescribeLogDirs.
REFUSED_RECORDS_TAG: Final = 20_002
LONGEST_REASON: Final = 1_000


def encode_refusal(reason: str) -> bytes:
    return reason[:LONGEST_REASON].encode()


def decode_refusal(data: bytes) -> str:
    """The reason; what is no UTF-8 is shown as it is."""
    return data.decode("utf-8", "backslashreplace")
