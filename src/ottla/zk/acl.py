"""Access control lists: permissions on a node. Pure.

As ZooKeeper's schemes `world`, `auth`, `digest`, `sasl`, `x509` and `ip` (Programmer's Guide, "ZooKeeper access control
using ACLs").
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.zk.errors import InvalidAclError, NoAuthError

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
EVERYTHING = READ | WRITE | CREATE | DELETE | ADMIN

DIGEST_SCHEME = "digest"
SASL_SCHEME = "sasl"
X509_SCHEME = "x509"
IP_SCHEME = "ip"
AUTH_SCHEME = "auth"
HIDDEN_DIGEST = "x"
_AUTHENTICATED = (DIGEST_SCHEME, SASL_SCHEME, X509_SCHEME)


class Identity(NamedTuple):
    """An identity in a scheme: an address, or a user with the digest of a password."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """One entry of a node's ACL: an identity and its permissions (`READ` and so on, combined)."""

    perms: int
    scheme: str
    id: str


AclList: TypeAlias = tuple[Acl, ...]
OPEN_ACL: AclList = (Acl(EVERYTHING, "world", "anyone"),)
ANYONE_READS = Acl(READ, "world", "anyone")
SUPER = Identity("super", "")
"""The identity that may do everything."""
SUPER_USER = "super"
"""The user of SASL who has it."""


def digest_identity(user_and_password: bytes) -> Identity:
    """The identity for `user:password`."""
    import hashlib  # here: it takes OpenSSL with it, and few brokers see passwords

    user = user_and_password.partition(b":")[0].decode("utf-8", "replace")
    # The scheme is ZooKeeper's: the digest is part of the znode data.
    digest = hashlib.sha1(user_and_password, usedforsecurity=False).digest()
    return Identity(DIGEST_SCHEME, f"{user}:{base64.b64encode(digest).decode()}")


def may_do(acl: AclList, wanted: int, identities: Collection[Identity]) -> bool:
    """Whether one of `identities` has one of the permissions `wanted`."""
    if acl is OPEN_ACL or SUPER in identities:
        return True
    for perms, scheme, who in acl:
        if not perms & wanted:
            continue
        if scheme == "world" and who == "anyone":
            return True
        if any(scheme == known.scheme and _matches(scheme, known.id, who) for known in identities):
            return True
    return False


def check_access(acl: AclList, wanted: int, identities: Collection[Identity], path: str) -> None:
    """Raise `NoAuthError` unless one of `identities` has one of the permissions `wanted`."""
    if acl is not OPEN_ACL and not may_do(acl, wanted, identities):
        raise NoAuthError(path, "its access list does not allow it")


def settled_acl(acl: Sequence[Acl] | None, identities: Collection[Identity], path: str) -> AclList:
    """The ACL that a node gets: `auth` replaced by the client's identities, without duplicates.

    Raises `InvalidAclError` if it is empty or has an invalid entry.
    """
    settled: dict[Acl, None] = {}
    for entry in acl or ():
        if entry.scheme == "world" and entry.id == "anyone":
            settled[entry] = None
        elif entry.scheme == AUTH_SCHEME:
            known = [Acl(entry.perms, *who) for who in identities if who.scheme in _AUTHENTICATED]
            if not known:
                raise InvalidAclError(path, "the scheme auth needs an authenticated client")
            settled.update(dict.fromkeys(known))
        elif _is_valid(entry.scheme, entry.id):
            settled[entry] = None
        else:
            raise InvalidAclError(path, f"{entry.scheme}:{entry.id} is not an identity")
    if not settled:
        raise InvalidAclError(path, "an access list has at least one entry")
    made = tuple(settled)
    return OPEN_ACL if made == OPEN_ACL else made


def shown_acl(acl: AclList, identities: Collection[Identity], path: str) -> AclList:
    """The ACL as shown to a client: only a client that may change it sees digests. Raises `NoAuthError`."""
    check_access(acl, READ | ADMIN, identities, path)
    if not may_do(acl, ADMIN, identities):
        return tuple(
            entry._replace(id=f"{entry.id.partition(':')[0]}:{HIDDEN_DIGEST}")
            if entry.scheme == DIGEST_SCHEME
            else entry
            for entry in acl
        )
    return acl


def _is_valid(scheme: str, who: str) -> bool:
    if scheme == DIGEST_SCHEME:
        return len(who.split(":")) == 2
    if scheme == IP_SCHEME:
        return _network(who) is not None
    return scheme in (SASL_SCHEME, X509_SCHEME) and bool(who)


def _matches(scheme: str, known: str, who: str) -> bool:
    if scheme != IP_SCHEME:
        return known == who
    from ipaddress import ip_address

    network = _network(who)
    try:
        return network is not None and ip_address(known) in network
    except ValueError:
        return False


def _network(text: str) -> IPv4Network | IPv6Network | None:
    import ipaddress  # not at the start of every broker: it takes milliseconds

    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
