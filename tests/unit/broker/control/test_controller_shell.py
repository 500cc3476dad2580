"""What the controller decided in an epoch that is over is not applied by its broker any more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.control.controller_shell import ControllerShell
from ottla.broker.control.membership import Term
from ottla.broker.slices import LoopSlices
from ottla.cluster.controller_events import Effect, Event, Notified, Notify, Resigned
from ottla.cluster.image import ImageDelta
from ottla.env.clock import VirtualClock
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R1")


class Decides:
    """A controller that has its broker apply a change, and keeps what comes of it."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self.outcomes: list[Event] = []

    def handle_in_slices(self, event: Event, _now_ms: int) -> list[Effect]:
        if isinstance(event, Notified):
            self.outcomes.append(event)
            return []
        return [Notify(7, 1, ImageDelta(()), self._epoch)]


@pytest.mark.parametrize("epoch", [3, 4, 0])
def test_a_change_of_another_epoch_is_refused(epoch: int) -> None:
    applied: list[ImageDelta] = []
    controller, nothing = Decides(epoch), Any
    membership: Any = SimpleNamespace(broker_id=1, term=Term(4, 0))

    async def apply(delta: ImageDelta) -> None:
        applied.append(delta)

    async def body() -> None:
        decides: Any = controller
        shell = ControllerShell(
            decides,
            membership,
            nothing,  # type: ignore[arg-type]
            VirtualClock(),
            LoopSlices(lambda: 0.0),
            apply,
            lambda _: None,
            lambda: None,
            nothing,  # type: ignore[arg-type]
        )
        shell.post(Resigned())
        await shell.settled()
        await shell.stop()

    asyncio.run(body())
    is_current = epoch == 4
    assert len(applied) == is_current
    [outcome] = controller.outcomes
    assert isinstance(outcome, Notified)
    error = outcome.refusal.error if outcome.refusal is not None else None
    assert error is (None if is_current else ErrorCode.NOT_CONTROLLER)
