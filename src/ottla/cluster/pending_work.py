"""The controller's work under way: outcomes that it waits for, slices to come, topics with a change under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias

from ottla.cluster.controller_events import (
    Continue,
    Continued,
    Effect,
    Event,
    MetadataChange,
    Notified,
    Write,
    Written,
)
from ottla.cluster.controller_state import ControllerState

OnWritten: TypeAlias = Callable[[Written], list[Effect]]
OnNotified: TypeAlias = Callable[[Notified], list[Effect]]
Then: TypeAlias = Callable[[], list[Effect]]

#: Partitions that are looked at in one slice, some microseconds each.
MOST_LOOKED_AT = 2_000


def nothing(_: object) -> list[Effect]:
    """Ignore an outcome."""
    return []


class PendingWork:
    """Continuations of outcomes and of slices. `handle` handles an event that waited for a change of its topic."""

    def __init__(self, state: ControllerState, handle: Callable[[Event], list[Effect]]) -> None:
        self._state = state
        self._handle = handle
        self._last_id = 0
        self._writes: dict[int, OnWritten] = {}
        self._notices: dict[int, OnNotified] = {}
        self._continuations: dict[int, Then] = {}
        #: Topics with a change under way, and the events queued behind it.
        self.busy: dict[str, deque[Event]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no effect is outstanding."""
        return not self._writes and not self._notices and not self._continuations

    def forget(self) -> None:
        """Ignore the outcomes of the former term's work: a new term begins."""
        self._writes.clear()
        self._notices.clear()
        self._continuations.clear()
        self.busy.clear()

    def proceed(self, outcome: Written | Notified | Continued) -> list[Effect]:
        """Continue with what waited for this outcome."""
        if isinstance(outcome, Written):
            return self._writes.pop(outcome.write_id, nothing)(outcome)
        if isinstance(outcome, Notified):
            return self._notices.pop(outcome.notify_id, nothing)(outcome)
        return self._continuations.pop(outcome.continuation_id, list)()

    def write(self, changes: Iterable[MetadataChange], then: OnWritten) -> list[Effect]:
        """Change znodes; `then` handles the outcome."""
        self._last_id += 1
        self._writes[self._last_id] = then
        return [Write(self._last_id, self._state.epoch, tuple(changes))]

    def notice_id(self, then: OnNotified) -> int:
        """The id of a notice to this broker; `then` handles its outcome."""
        self._last_id += 1
        self._notices[self._last_id] = then
        return self._last_id

    def later(self, then: Then) -> list[Effect]:
        """Continue with `then` in another slice."""
        self._last_id += 1
        self._continuations[self._last_id] = then
        return [Continue(self._last_id)]

    def in_slices(
        self,
        work: Iterator[tuple[int, list[Effect]]],
        then: Then = list,
        *,
        is_apart: bool = False,
        is_cut: bool = False,
    ) -> list[Effect]:
        """The effects of all this work, in as many slices as it takes; `then` follows.

        Each piece has the number of partitions that were looked at for it. With `is_apart` what follows, which is
        about all of them again, has a slice of its own where the work has had several (`is_cut`).
        """
        effects: list[Effect] = []
        looked_at = 0
        for size, found in work:
            effects.extend(found)
            looked_at += size
            if looked_at >= MOST_LOOKED_AT:
                return effects + self.later(partial(self.in_slices, work, then, is_apart=is_apart, is_cut=True))
        return effects + (self.later(then) if is_apart and is_cut else then())

    def begin(self, name: str) -> None:
        """Mark a change of the topic as under way."""
        self.busy[name] = deque()

    def end(self, name: str, effects: list[Effect]) -> list[Effect]:
        """End the change of a topic and handle the events queued behind it."""
        waiting = self.busy.pop(name, None)
        while waiting:
            effects.extend(self._handle(waiting.popleft()))
            if name in self.busy:
                self.busy[name].extend(waiting)
                break
        return effects

    def must_wait(self, name: str, event: Event) -> bool:
        """Queue the event and return True if a change of its topic is under way."""
        waiting = self.busy.get(name)
        if waiting is not None:
            waiting.append(event)
        return waiting is not None


def why(outcome: Written) -> str:
    """The reason why a write failed."""
    return outcome.refusal.message if outcome.refusal is not None else "the metadata could not be written"
