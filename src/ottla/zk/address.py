"""The address of a ZooKeeper ensemble: `host:port,host:port/chroot`, as in `zookeeper.connect`. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ottla.zk.tree import BadArgumentsError, check_path

DEFAULT_PORT = 2181
HIGHEST_PORT = 65_535

_FORM = "It has the form host:port,host:port/chroot, as in 127.0.0.1:2181/kafka."


class ZkAddressError(ValueError):
    """An invalid address; the message says why, and what a valid one looks like."""


class ZkAddress(NamedTuple):
    """The servers of an ensemble, and the chroot of all our nodes (empty: the root)."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str = ""

    @staticmethod
    def parse(text: str) -> ZkAddress:
        """Parse `host:port,host:port/chroot`; the default port is 2181. Raises `ZkAddressError`."""
        hosts_text, slash, path = text.strip().partition("/")
        hosts = tuple(_host(part.strip(), text) for part in hosts_text.split(",") if part.strip())
        if not hosts:
            raise ZkAddressError(f"{text!r} names no ZooKeeper server. {_FORM}")
        chroot = (slash + path).rstrip("/")
        if chroot:
            try:
                check_path(chroot)
            except BadArgumentsError as error:
                raise ZkAddressError(f"{text!r} ends in no path of a node ({error}). {_FORM}") from error
        return ZkAddress(hosts, chroot)

    @property
    def servers(self) -> str:
        """`host:port,host:port`, without the chroot."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    def __str__(self) -> str:
        return self.servers + self.chroot


def _host(part: str, text: str) -> tuple[str, int]:
    host, colon, port_text = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port_text = part, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ZkAddressError(f"{part!r} in {text!r} is not host:port; an IPv6 address stands in brackets. {_FORM}")
    if not host or not port_text.isascii() or not port_text.isdigit() or not 0 < int(port_text) <= HIGHEST_PORT:
        raise ZkAddressError(f"{part!r} in {text!r} is not host:port. {_FORM}")
    return host, int(port_text)
