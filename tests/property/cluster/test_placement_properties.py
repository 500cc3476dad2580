"""Whatever the brokers and racks: replicas on distinct brokers, racks used before they are used twice, leaders even."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.placement import BrokerRack, assign_replicas
from ottla.cluster.refusal import TopicRefusal

pytestmark = pytest.mark.spec("R4")


@given(st.data())
def test_replicas_are_spread(data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True))
    racked = data.draw(st.booleans())
    racks = {broker: data.draw(st.sampled_from("abc")) if racked else None for broker in ids}
    factor = data.draw(st.integers(1, len(ids)))
    partitions = data.draw(st.integers(1, 40))
    place = st.integers(0, len(ids) - 1)
    result = assign_replicas(
        [BrokerRack(broker, rack) for broker, rack in racks.items()],
        partitions,
        factor,
        start=data.draw(place),
        shift=data.draw(place),
    )
    assert not isinstance(result, TopicRefusal)
    assert sorted(result) == list(range(partitions))
    for replicas in result.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(ids)
        assert len({racks[replica] for replica in replicas}) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in result.values())
    assert max(leaders.values()) - min((leaders[broker] for broker in ids), default=0) <= 1
