"""Handlers of requests: one method per type, each of which queues one response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ottla.env.disk import DiskError
from ottla.zk import wire
from ottla.zk.acl import (
    DIGEST_SCHEME,
    IP_SCHEME,
    OPEN_ACL,
    READ,
    SASL_SCHEME,
    SUPER,
    SUPER_USER,
    Identity,
    check_access,
    digest_identity,
    shown_acl,
)
from ottla.zk.errors import (
    AUTH_FAILED_CODE,
    MARSHALLING_ERROR_CODE,
    UNIMPLEMENTED_CODE,
    BadArgumentsError,
    NoNodeError,
    ZkError,
    codes_of_failed,
)
from ottla.zk.server.inquiries import Inquiries
from ottla.zk.tree import CloseSession, Transaction, Znode
from ottla.zk.watches import EventType, WatchEvent
from ottla.zk.wire import Op

if TYPE_CHECKING:
    from ottla.zk.server.connection import ClientConnection
    from ottla.zk.store import TreeStore

Handler: TypeAlias = "Callable[[ClientConnection, int, bytes, int, int], None]"
CallSoon: TypeAlias = Callable[..., object]

#: Limit of identities that one connection may add.
MOST_IDENTITIES = 16


class Requests:
    """The requests of clients that have a session."""

    def __init__(
        self,
        store: TreeStore,
        call_soon: CallSoon,
        session_closed: Callable[[ClientConnection, int], None],
        users: Mapping[str, str],
        nonce: Callable[[], str],
        refused: Callable[[ClientConnection, str], None],
    ) -> None:
        self._store = store
        self._tree = store.tree
        self._watches = store.watches
        self._call_soon = call_soon
        self._session_closed = session_closed
        self._users = users
        self._nonce = nonce
        self._refused = refused
        self._handlers: dict[int, Handler] = {
            Op.GET_DATA: self._get_data,
            Op.EXISTS: self._exists,
            Op.GET_CHILDREN: self._get_children,
            Op.GET_CHILDREN2: partial(self._get_children, with_stat=True),
            Op.GET_ACL: self._get_acl,
            Op.SYNC: self._sync,
            Op.PING: self._ping,
            Op.MULTI: self._multi,
            Op.AUTH: self._auth,
            Op.SET_WATCHES: self._set_watches,
            Op.SET_WATCHES2: self._set_watches2,
            Op.CLOSE_SESSION: self._close_session,
            **({Op.SASL: self._sasl} if users else {}),
            **Inquiries(store).handlers,
            **{op: self._changer(op) for op in (Op.CREATE, Op.CREATE2, Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.CHECK)},
        }
        self._known = frozenset(Op)

    def handle(self, connection: ClientConnection, data: bytes, start: int, end: int) -> None:
        """Handle one request and queue its response."""
        try:
            xid, op = wire.request_header(data, start, end)
        except wire.JuteError:
            connection.close()
            return
        handler = self._handlers.get(op)
        if handler is None:
            connection.answer(xid, 0, UNIMPLEMENTED_CODE)
            if op not in self._known:
                # As ZooKeeper does: the client does not speak its protocol.
                connection.close_when_sent()
            return
        try:
            handler(connection, xid, data, start + 8, end)
        except wire.JuteError:
            connection.answer(xid, 0, MARSHALLING_ERROR_CODE)
        except ZkError as error:
            # The state that led to the error may not be flushed yet.
            connection.answer(xid, self._tree.last_zxid, error.CODE)
        except DiskError:
            connection.answer(xid, 0, ZkError.CODE)

    def notify(self, transaction: Transaction) -> None:
        """Fire the watches for a transaction's changes."""
        self._watches.notify(transaction.events, transaction.zxid, self._call_soon)

    # Reading

    def _node(self, connection: ClientConnection, path: str, wanted: int = READ) -> Znode:
        node = self._tree.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if wanted and node.acl is not OPEN_ACL:
            check_access(node.acl, wanted, connection.identities, path)
        return node

    def _get_data(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        path, watch = wire.path_and_watch(data, position, end)
        node = self._node(connection, path)
        if watch:
            self._watches.watch_data(path, connection)
        zxid = connection.zxid_after(self._store.unforced(path))
        connection.put(wire.data_reply(xid, zxid, node), zxid)

    def _exists(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        path, watch = wire.path_and_watch(data, position, end)
        node = self._tree.nodes.get(path)
        if node is None and "\0" in path:
            raise BadArgumentsError(path, "no character of a path is zero")
        if node is not None and node.acl is not OPEN_ACL:
            check_access(node.acl, READ, connection.identities, path)
        if watch:
            self._watches.watch_data(path, connection)
        zxid = self._store.unforced(path)
        if node is None:
            connection.answer(xid, zxid, NoNodeError.CODE)
        else:
            connection.answer(xid, zxid, 0, wire.node_stat(node))

    def _get_children(
        self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int, *, with_stat: bool = False
    ) -> None:
        path, watch = wire.path_and_watch(data, position, end)
        node = self._node(connection, path)
        if watch:
            self._watches.watch_children(path, connection)
        body = wire.strings_body(node.children)
        if with_stat:
            body += wire.node_stat(node)
        connection.answer(xid, self._store.unforced(path), 0, body)

    def _get_acl(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        path = wire.path_only(data, position, end)
        node = self._node(connection, path, 0)
        acl = shown_acl(node.acl, connection.identities, path)
        connection.answer(xid, self._store.unforced(path), 0, wire.acl_body(acl) + wire.node_stat(node))

    def _sync(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        path = wire.path_only(data, position, end)
        connection.answer(xid, self._tree.last_zxid, 0, wire.string_body(path))

    def _ping(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        connection.answer(xid, 0)

    # Changing

    def _changer(self, op: int) -> Handler:
        store = self._store

        def change(connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
            operation = wire.operation(op, data, position, end)
            session = connection.session
            assert session is not None
            done = store.execute((operation,), session.id, connection.identities)
            if done.events:
                self._watches.notify(done.events, done.zxid, self._call_soon)
            body = wire.result_body(op, operation, done.results[0], done.zxid, done.time_ms, session.id)
            connection.answer(xid, done.zxid, 0, body)

        return change

    def _multi(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        ops, operations = wire.multi(data, position, end)
        session = connection.session
        assert session is not None
        try:
            done = self._store.execute(operations, session.id, connection.identities)
        except ZkError as error:
            codes = codes_of_failed(error, len(operations))
            connection.answer(xid, self._tree.last_zxid, 0, wire.failed_multi_body(codes))
            return
        self.notify(done)
        body = wire.multi_body(ops, operations, done.results, done.zxid, done.time_ms, session.id)
        connection.answer(xid, done.zxid, 0, body)

    def _close_session(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        session = connection.session
        assert session is not None
        done = self._store.execute([CloseSession(session.id)], session.id)
        self._session_closed(connection, session.id)
        self.notify(done)
        connection.answer(xid, done.zxid)
        connection.close_when_sent()

    # Watches and identities

    def _set_watches(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        self._arm(connection, wire.watches_to_set(data, position, end, with_persistent=False))
        connection.answer(xid, 0)

    def _set_watches2(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        wanted = wire.watches_to_set(data, position, end, with_persistent=True)
        if wanted.persistent:
            connection.answer(xid, 0, UNIMPLEMENTED_CODE)
            return
        self._arm(connection, wanted)
        connection.answer(xid, 0)

    def _arm(self, connection: ClientConnection, wanted: wire.WatchesToSet) -> None:
        """Set the watches of a reconnected client, or fire those that have missed a change."""
        nodes, seen = self._tree.nodes, wanted.relative_zxid
        for path in wanted.data:
            node = nodes.get(path)
            if node is not None and node.mzxid <= seen:
                self._watches.watch_data(path, connection)
            else:
                self._missed(connection, path, EventType.DELETED if node is None else EventType.DATA_CHANGED)
        for path in wanted.exist:
            if path in nodes:
                self._missed(connection, path, EventType.CREATED)
            else:
                self._watches.watch_data(path, connection)
        for path in wanted.children:
            node = nodes.get(path)
            if node is not None and node.pzxid <= seen:
                self._watches.watch_children(path, connection)
            else:
                self._missed(connection, path, EventType.DELETED if node is None else EventType.CHILDREN_CHANGED)

    def _missed(self, connection: ClientConnection, path: str, what: EventType) -> None:
        connection.notice(WatchEvent(what, path), connection.zxid_after(self._store.unforced(path)))

    def _auth(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        packet = wire.auth_packet(data, position, end)
        known = connection.identities
        if packet.scheme == DIGEST_SCHEME and len(known) < MOST_IDENTITIES:
            _add(connection, digest_identity(packet.auth))
        elif packet.scheme != IP_SCHEME:
            connection.answer(xid, 0, AUTH_FAILED_CODE)
            connection.close_when_sent()
            return
        connection.answer(xid, 0)

    def _sasl(self, connection: ClientConnection, xid: int, data: bytes, position: int, end: int) -> None:
        """One step of a login by DIGEST-MD5."""
        from ottla.security.digest_md5 import DigestMd5Server
        from ottla.security.scram import SaslError

        token = wire.sasl_token(data, position, end)
        if connection.sasl is None:
            connection.sasl = DigestMd5Server(self._users, self._nonce())
        exchange = connection.sasl
        try:
            answer = exchange.step(token)
        except SaslError as error:
            self._refused(connection, f"its login as user {exchange.user!r:.100} is refused: {error}")
            connection.answer(xid, 0, AUTH_FAILED_CODE, wire.buffer_body(None))
            connection.close_when_sent()
            return
        if exchange.is_complete:
            connection.sasl = None
            _add(connection, Identity(SASL_SCHEME, exchange.user))
            if exchange.user == SUPER_USER:
                _add(connection, SUPER)
        connection.answer(xid, 0, 0, wire.buffer_body(answer))


def _add(connection: ClientConnection, identity: Identity) -> None:
    if identity not in connection.identities:
        connection.identities = (*connection.identities, identity)
