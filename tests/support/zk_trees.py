"""Trees of a ZooKeeper: a client to look at them with, and whole ones to be compared."""

from __future__ import annotations

from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

#: Path to data and whether the node is ephemeral.
Nodes = dict[str, tuple[str | None, bool]]

#: The server may agree to less.
SESSION_TIMEOUT_S = 60.0
PATIENCE_S = 90.0
#: kazoo doubles its pauses up to a minute and more otherwise.
_SOON_AGAIN: dict[str, Any] = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}


def open_tree(hosts: str) -> KazooClient:
    """A connected client whose reads outlive lost connections and expired sessions, as servers are killed or stalled.

    Its ephemeral nodes and watches are those of any other session.
    """
    patient = {**_SOON_AGAIN, "deadline": PATIENCE_S}
    client = KazooClient(hosts, timeout=SESSION_TIMEOUT_S, connection_retry=_SOON_AGAIN, command_retry=patient)
    for name in ("get", "exists", "get_children"):
        setattr(client, name, partial(client.retry, getattr(client, name)))
    client.start(PATIENCE_S)
    return client


def dumped(zk: KazooClient) -> Nodes:
    """The whole tree, but for ZooKeeper's own nodes."""
    found: Nodes = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        try:
            data, stat = zk.get(path)
            children = zk.get_children(path)
        except (NoNodeError, NoAuthError):  # gone meanwhile, or some other test's that nobody else may read
            continue
        # Other tests' nodes may hold anything.
        found[path] = (
            data.decode(errors="backslashreplace") if data is not None else None,
            stat.ephemeralOwner != 0,
        )
        waiting += [f"{path.rstrip('/')}/{name}" for name in children if name != "zookeeper"]
    return dict(sorted(found.items()))
