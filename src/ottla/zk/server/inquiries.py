"""Less common requests: own ephemeral nodes, identities, number of descendants, watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.zk import wire
from ottla.zk.acl import DIGEST_SCHEME, OPEN_ACL, READ, check_access
from ottla.zk.errors import NoNodeError, NoWatcherError, ZkError
from ottla.zk.wire import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.zk.server.connection import ClientConnection
    from ottla.zk.store import TreeStore
    from ottla.zk.tree import Znode

#: ZooKeeper's `WatcherType`: watches on children, on data, or either.
CHILDREN_WATCHES, DATA_WATCHES, ANY_WATCHES = 1, 2, 3


class Inquiries:
    """Handlers of these requests."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._tree = store.tree
        self._watches = store.watches
        self.handlers: dict[int, Callable[[ClientConnection, int, bytes, int, int], None]] = {
            Op.GET_EPHEMERALS: self._get_ephemerals,
            Op.GET_ALL_CHILDREN_NUMBER: self._get_all_children_number,
            Op.WHO_AM_I: self._who_am_i,
            Op.CHECK_WATCHES: self._check_watches,
            Op.REMOVE_WATCHES: self._remove_watches,
            Op.MULTI_READ: self._multi_read,
        }

    def _readable(self, connection: ClientConnection, path: str) -> Znode:
        node = self._tree.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if node.acl is not OPEN_ACL:
            check_access(node.acl, READ, connection.identities, path)
        return node

    def _get_ephemerals(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        prefix = wire.path_only(data, position, end).strip()
        session = connection.session
        assert session is not None
        owned = [path for path in self._tree.ephemerals_of(session.id) if prefix == "/" or path.startswith(prefix)]
        connection.answer(xid, self._tree.last_zxid, 0, wire.strings_body(owned))

    def _get_all_children_number(
        self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int
    ) -> None:
        path = wire.path_only(data, position, end)
        self._readable(connection, path)
        prefix = path if path == "/" else path + "/"
        number = sum(other.startswith(prefix) for other in self._tree.nodes) - (path == "/")
        connection.answer(xid, self._tree.last_zxid, 0, wire.int_body(number))

    def _who_am_i(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        known = [
            (scheme, who.partition(":")[0] if scheme == DIGEST_SCHEME else who) for scheme, who in connection.identities
        ]
        connection.answer(xid, 0, 0, wire.identities_body(known))

    # Watches

    def _check_watches(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        path, on_data, on_children = _meant(data, position, end)
        has_data, has_children = self._watches.has(path, connection)
        if not ((on_data and has_data) or (on_children and has_children)):
            raise NoWatcherError(path)
        connection.answer(xid, 0)

    def _remove_watches(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        path, on_data, on_children = _meant(data, position, end)
        if not self._watches.remove(path, connection, on_data=on_data, on_children=on_children):
            raise NoWatcherError(path)
        connection.answer(xid, 0)

    # Multi reads

    def _multi_read(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        zxid, results = 0, []
        for op, path in wire.multi_read(data, position, end):
            zxid = max(zxid, self._store.unforced(path))
            try:
                node = self._readable(connection, path)
            except ZkError as error:
                results.append((Op.ERROR, error.CODE, wire.int_body(error.CODE)))
                continue
            if op == Op.GET_DATA:
                results.append((Op.GET_DATA, 0, wire.data_body(node)))
            else:
                results.append((Op.GET_CHILDREN, 0, wire.strings_body(node.children)))
        connection.answer(xid, zxid, 0, wire.multi_read_body(results))


def _meant(data: bytes, position: int, end: int) -> tuple[str, bool, bool]:
    """The path of the watches in a request, whether it covers those on data, and those on children."""
    path, which = wire.path_and_number(data, position, end)
    if which not in (CHILDREN_WATCHES, DATA_WATCHES, ANY_WATCHES):
        raise wire.JuteError(f"{which} is not a kind of watches")
    return path, which != CHILDREN_WATCHES, which != DATA_WATCHES
