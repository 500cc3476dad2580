"""Which partitions' logs were deleted and may still be named in checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

#: Deleted logs that are remembered, so that all leave the checkpoints with the first that is made again.
MOST_DELETED_LOGS: Final = 100_000


class DeletedLogs:
    """Partitions by their names in checkpoints (`checkpoints.partition_name`).

    The regular checkpoints name no deleted log: what went before they were begun is forgotten at their end.
    """

    def __init__(self) -> None:
        self._names: set[bytes] = set()
        #: Those that went before the regular checkpoints were begun.
        self._before: set[bytes] = set()
        self._are_all_known = True

    def add(self, name: bytes) -> None:
        """The log was deleted."""
        if len(self._names) < MOST_DELETED_LOGS:
            self._names.add(name)
        else:
            self._are_all_known = False

    def discard(self, name: bytes) -> None:
        """There is a log again."""
        self._names.discard(name)

    def known(self) -> Set[bytes] | None:
        """All of them; None if there were more than are remembered."""
        return self._names if self._are_all_known else None

    def clear(self) -> None:
        """No checkpoint names any."""
        self._names.clear()
        self._are_all_known = True

    def regular_begun(self) -> None:
        """The regular checkpoints are begun."""
        self._before = self._names.copy()

    def regular_ended(self, still_named: Iterable[Iterable[bytes]]) -> None:
        """They are made, but for those that name `still_named`."""
        self._names -= self._before.difference(*still_named)
        self._before.clear()
