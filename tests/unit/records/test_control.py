from __future__ import annotations

import pytest

from ottla.records.control import ControlRecordType, control_record_type, coordinator_epoch, end_transaction_record
from ottla.records.errors import BatchError


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_end_of_transaction(kind):
    key, value = end_transaction_record(kind, 7)
    assert control_record_type(key) == kind
    assert coordinator_epoch(value) == 7


def test_kinds_to_come_are_unknown_and_longer_keys_are_read():
    assert control_record_type(bytes([0, 0, 0, 99])) == ControlRecordType.UNKNOWN
    assert control_record_type(bytes([0, 3, 0, 1, 5, 5])) == ControlRecordType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_malformed_keys(key):
    with pytest.raises(BatchError):
        control_record_type(key)


@pytest.mark.parametrize("value", [None, b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x01"])
def test_malformed_values(value):
    with pytest.raises(BatchError):
        coordinator_epoch(value)
