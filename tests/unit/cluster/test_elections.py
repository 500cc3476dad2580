"""What the controller accepts as an ISR; the other refusals are in tests/scenarios/controller/isr.txt."""

from __future__ import annotations

import pytest

from ottla.cluster.controller_events import IsrProposed, LiveBroker
from ottla.cluster.elections import isr_refusal
from ottla.cluster.image import BrokerImage, PartitionImage
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R1", "R2")


@pytest.mark.parametrize(
    ("epochs", "error"),
    [
        ({}, ErrorCode.NONE),
        ({2: 20}, ErrorCode.NONE),
        ({2: 19}, ErrorCode.INELIGIBLE_REPLICA),
        ({3: 1}, ErrorCode.NONE),
    ],
)
def test_a_replica_that_was_restarted_since_it_fetched_is_not_accepted(
    epochs: dict[int, int], error: ErrorCode
) -> None:
    """KIP-903; an epoch of a broker that is not proposed does not count."""
    live = {broker: LiveBroker(BrokerImage(broker, ()), 10 * broker) for broker in (1, 2, 3)}
    proposed = IsrProposed(0, 1, 10, "t", 0, 4, 6, (1, 2), broker_epochs=epochs)
    assert isr_refusal(proposed, PartitionImage(1, 4, (1, 2, 3), (1,)), 6, live) is error
