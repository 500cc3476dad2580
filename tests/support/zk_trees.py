"""Whole trees of a ZooKeeper, to be compared."""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

#: Path to data and whether the node is ephemeral.
Nodes = dict[str, tuple[str | None, bool]]


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
