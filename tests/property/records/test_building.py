"""The builder in plain Python, the compiled one and the encoder make the same bytes of whatever records there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.records import _building
from ottla.records.building import finish_batch
from ottla.records.record import Record, encode_batch

try:
    from ottla.records import _building_native as compiled
except ImportError:
    compiled = None

OPTIONAL = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=80)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(-(2**61), 2**61), OPTIONAL, OPTIONAL, HEADERS), min_size=1, max_size=150
)


@given(RECORDS)
def test_equal_bytes(records):
    wanted = encode_batch(records)
    for module in filter(None, [_building, compiled]):
        builder = module.RecordsBuilder()
        for record in records:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        assert finish_batch(builder) == wanted


@given(st.binary(max_size=60))
def test_equal_hashes(data):
    if compiled is not None:
        assert compiled.murmur2(data) == _building.murmur2(data)
