"""ZooKeeper's four-letter words: an administrator's queries, each on a connection of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla import __version__

#: The ZooKeeper version of the protocol; tools read the number.
VERSION = f"3.8.4-ottla-{__version__}"
WORD_LENGTH = 4


class ConnectionStats(NamedTuple):
    """One connection, as shown by `cons` and `stat`."""

    host: str
    port: int
    received: int
    sent: int
    session_id: int
    timeout_ms: int


class ServerStats(NamedTuple):
    """A server's statistics. Expensive ones are computed only for words that report them."""

    connections: int
    outstanding: int
    zxid: int
    nodes: int
    settings: dict[str, object]
    #: Requests received, and responses and events sent.
    traffic: Callable[[], tuple[int, int]]
    data_bytes: Callable[[], int]
    watches: Callable[[], int]
    watched_paths: Callable[[], int]
    sessions: Callable[[], dict[int, int]]
    ephemerals: Callable[[], dict[int, list[str]]]
    clients: Callable[[], list[ConnectionStats]]


def answer(word: str, stats: Callable[[], ServerStats]) -> str | None:
    """The response to one of ZooKeeper's words, None for what is none.

    Those of `REFUSED_WORDS` are answered as by a ZooKeeper whose `4lw.commands.whitelist` has the others.
    """
    if word in REFUSED_WORDS:
        return f"{word} is not executed because it is not in the whitelist.\n"
    found = WORDS.get(word)
    return None if found is None else found(stats())


def _ruok(stats: ServerStats) -> str:
    return "imok"


def _isro(stats: ServerStats) -> str:
    return "rw"


def _srvr(stats: ServerStats) -> str:
    return f"Zookeeper version: {VERSION}\n{_state(stats)}"


def _stat(stats: ServerStats) -> str:
    clients = "".join(
        f" /{client.host}:{client.port}[{int(client.session_id != 0)}](queued=0,recved={client.received},"
        f"sent={client.sent})\n"
        for client in stats.clients()
    )
    return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n{_state(stats)}"


def _state(stats: ServerStats) -> str:
    received, sent = stats.traffic()
    return (
        f"Received: {received}\nSent: {sent}\nConnections: {stats.connections}\n"
        f"Outstanding: {stats.outstanding}\nZxid: 0x{stats.zxid:x}\nMode: standalone\nNode count: {stats.nodes}\n"
    )


def _mntr(stats: ServerStats) -> str:
    received, sent = stats.traffic()
    values = {
        "zk_version": VERSION,
        "zk_server_state": "standalone",
        "zk_packets_received": received,
        "zk_packets_sent": sent,
        "zk_num_alive_connections": stats.connections,
        "zk_outstanding_requests": stats.outstanding,
        "zk_znode_count": stats.nodes,
        "zk_watch_count": stats.watches(),
        "zk_ephemerals_count": sum(map(len, stats.ephemerals().values())),
        "zk_approximate_data_size": stats.data_bytes(),
        "zk_global_sessions": len(stats.sessions()),
    }
    return "".join(f"{name}\t{value}\n" for name, value in values.items())


def _conf(stats: ServerStats) -> str:
    return "".join(f"{name}={value}\n" for name, value in stats.settings.items())


def _cons(stats: ServerStats) -> str:
    return "".join(
        f" /{client.host}:{client.port}[1](queued=0,recved={client.received},sent={client.sent},"
        f"sid=0x{client.session_id:x},to={client.timeout_ms})\n"
        for client in stats.clients()
    )


def _dump(stats: ServerStats) -> str:
    sessions, ephemerals = stats.sessions(), stats.ephemerals()
    lines = ["SessionTracker dump:", f"Session Sets ({len(sessions)}):"]
    lines += [f"0x{session_id:x}\t{timeout_ms}ms" for session_id, timeout_ms in sessions.items()]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(ephemerals)}):"]
    for session_id, paths in ephemerals.items():
        lines += [f"0x{session_id:x}:", *(f"\t{path}" for path in paths)]
    return "\n".join(lines) + "\n"


def _wchs(stats: ServerStats) -> str:
    return f"{stats.connections} connections watching {stats.watched_paths()} paths\nTotal watches:{stats.watches()}\n"


def _envi(stats: ServerStats) -> str:
    return f"Environment:\nzookeeper.version={VERSION}\n"


WORDS = {
    "conf": _conf,
    "cons": _cons,
    "dump": _dump,
    "envi": _envi,
    "isro": _isro,
    "mntr": _mntr,
    "ruok": _ruok,
    "srvr": _srvr,
    "stat": _stat,
    "wchs": _wchs,
}

#: ZooKeeper's words that change the server, or name each watch and session (`FourLetterCommands` of 3.8).
REFUSED_WORDS = frozenset(("crst", "dirs", "gtmk", "hash", "srst", "stmk", "wchc", "wchp"))
