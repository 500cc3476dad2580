"""A broker's session with coordination metadata in the same process, which ends as if its process had been killed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ottla.zk.client import ForwardingZk, LocalClient
from ottla.zk.store import TreeStore
from ottla.zk.tree import SessionExpiredError
from ottla.zk.watches import LocalWatch

T = TypeVar("T")


class KillableSession(ForwardingZk):
    """A session that `kill` ends: its ephemeral nodes are deleted, and later calls raise SessionExpiredError."""

    def __init__(self, store: TreeStore, session_id: int) -> None:
        self._store, self._local = store, LocalClient(store, session_id)
        super().__init__(self._local)
        self._is_killed = False

    def kill(self) -> None:
        """End the session at once; its own watches are not called."""
        self._is_killed = True
        killed = self.session_id
        self._store.watches.drop_if(lambda watch: isinstance(watch, LocalWatch) and watch.session_id == killed)
        self._local.notify(self._store.expire_session(killed))

    async def _forward(
        self, paths: Sequence[str], call: Callable[[], Coroutine[Any, Any, T]], *, changes: bool = False
    ) -> T:
        if self._is_killed:
            raise SessionExpiredError(paths[0] if paths else "/")
        return await call()

    async def close(self) -> None:
        """See `ZkClient.close`."""
        if not self._is_killed:
            await super().close()
