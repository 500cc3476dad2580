"""A broker's reports of records that its replicas lost or removed: a tagged field of ottla in Kafka's DescribeLogDirs.

Kafka has no field for them. Clients pass over tagged fields that they do not know (KIP-482), so a tag far from Kafka's
own disturbs no client. The field belongs to a partition of a log directory, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ottla.wire.errors import WireError

#: The tag of the field at a partition of DescribeLogDirs.
LOST_RECORDS_TAG: Final = 20_001
#: An offset or an id that is not known.
UNKNOWN: Final = -1


class LostRecords(NamedTuple):
    """Records that one replica does not have, or no longer has.

    Either it was elected leader without being in sync, and lacks what others had from `start` on, or it followed
    another leader and removed the records from `start` to `end`.
    """

    is_election: bool
    #: First offset, and the one after the last; -1 for an election where the ends of the others are unknown.
    start: int
    end: int
    #: How far the records are known to have been committed; -1 where nothing is known.
    committed_end: int
    #: The leader epochs in which they were written; none where it was an election.
    epochs: tuple[int, ...]
    #: The leader for which they are lost: itself for an election.
    leader: int
    leader_epoch: int
    #: Wall-clock time in milliseconds.
    at_ms: int

    @property
    def was_committed(self) -> bool:
        """Whether some of them are known to have been committed."""
        return self.committed_end > self.start


def encode_lost_records(found: Iterable[LostRecords]) -> bytes:
    """The field's content."""
    return json.dumps([each._asdict() for each in found], separators=(",", ":")).encode()


def decode_lost_records(data: bytes) -> list[LostRecords]:
    """The reports in a field. Raises WireError if it is malformed."""
    try:
        found = json.loads(data)
        if not isinstance(found, list):
            raise ValueError("not a list")
        return [_decoded(each) for each in found]
    except (ValueError, TypeError, KeyError) as error:
        raise WireError(f"a report of lost records is malformed: {error}") from None


def _decoded(found: dict[str, Any]) -> LostRecords:
    """One report; what later versions may add is passed over."""
    fields = {name: found[name] for name in LostRecords._fields}
    fields["epochs"] = tuple(fields["epochs"])
    report = LostRecords(**fields)
    numbers = (*report[1:4], *report.epochs, *report[5:])
    if type(found["is_election"]) is not bool or any(type(number) is not int for number in numbers):
        raise ValueError("fields of other types than expected")
    return report


# Why a replica could not write the last records that came: another such field, as UTF-8.

#: The tag of the field at a partition of DescribeLogDirs.
REFUSED_RECORDS_TAG: Final = 20_002
LONGEST_REASON: Final = 1_000


def encode_refusal(reason: str) -> bytes:
    """The field's content."""
    return reason[:LONGEST_REASON].encode()


def decode_refusal(data: bytes) -> str:
    """The reason; what is no UTF-8 is shown as it is."""
    return data.decode("utf-8", "backslashreplace")
