from __future__ import annotations

import pytest

from ottla.zk.acl import (
    ADMIN,
    EVERYTHING,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    Identity,
    check_access,
    digest_identity,
    may_do,
    settled_acl,
    shown_acl,
)
from ottla.zk.errors import InvalidAclError, NoAuthError

ME = digest_identity(b"me:secret")
HERE = Identity("ip", "10.1.2.3")


def test_a_digest_is_zookeepers() -> None:
    # The example of ZooKeeper's documentation.
    assert digest_identity(b"super:test") == Identity("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=")


@pytest.mark.parametrize(
    ("acl", "wanted", "allowed"),
    [
        (OPEN_ACL, ADMIN, True),
        ((Acl(READ, "world", "anyone"),), READ, True),
        ((Acl(READ, "world", "anyone"),), WRITE, False),
        ((Acl(EVERYTHING, *ME),), WRITE, True),
        ((Acl(EVERYTHING, "digest", "other:x"),), WRITE, False),
        ((Acl(WRITE, "ip", "10.1.2.3"),), WRITE, True),
        ((Acl(WRITE, "ip", "10.1.0.0/16"),), WRITE, True),
        ((Acl(WRITE, "ip", "10.2.0.0/16"),), WRITE, False),
        ((Acl(WRITE, "ip", "::1"),), WRITE, False),
        ((Acl(READ, "world", "anyone"), Acl(WRITE, *ME)), WRITE, True),
    ],
)
def test_access(acl: tuple[Acl, ...], wanted: int, allowed: bool) -> None:
    assert may_do(acl, wanted, [HERE, ME]) is allowed
    if not allowed:
        with pytest.raises(NoAuthError, match="/a"):
            check_access(acl, wanted, [HERE, ME], "/a")


def test_what_a_node_gets() -> None:
    auth = Acl(READ, "auth", "")
    mine = Acl(READ, *ME)
    assert settled_acl([auth, mine, auth], [HERE, ME], "/a") == (mine,)
    assert settled_acl([Acl(EVERYTHING, "world", "anyone")], [HERE], "/a") is OPEN_ACL
    for refused in ([], None, [Acl(1, "auth", "")], [Acl(1, "world", "x")], [Acl(1, "ip", "x")], [Acl(1, "sasl", "")]):
        with pytest.raises(InvalidAclError):
            settled_acl(refused, [HERE], "/a")


def test_digests_are_shown_to_administrators_only() -> None:
    acl = (Acl(EVERYTHING, *ME), Acl(READ, "world", "anyone"))
    assert shown_acl(acl, [HERE, ME], "/a") == acl
    assert shown_acl(acl, [HERE], "/a") == (Acl(EVERYTHING, "digest", "me:x"), acl[1])
    with pytest.raises(NoAuthError):
        shown_acl(acl[:1], [HERE], "/a")
