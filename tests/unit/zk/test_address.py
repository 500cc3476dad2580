from __future__ import annotations

import pytest

from ottla.zk.address import ZkAddress, ZkAddressError


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk", [("zk", 2181)], ""),
        ("zk:1", [("zk", 1)], ""),
        (" a:1, b:2 ,c ", [("a", 1), ("b", 2), ("c", 2181)], ""),
        ("a:1,b:2/kafka/one", [("a", 1), ("b", 2)], "/kafka/one"),
        ("a:1/", [("a", 1)], ""),
        ("a:1/kafka/", [("a", 1)], "/kafka"),
        ("[::1]:5,[fe80::1]", [("::1", 5), ("fe80::1", 2181)], ""),
    ],
)
def test_addresses(text: str, hosts: list[tuple[str, int]], chroot: str) -> None:
    assert ZkAddress.parse(text) == (tuple(hosts), chroot)
    assert ZkAddress.parse(str(ZkAddress.parse(text))) == (tuple(hosts), chroot)


@pytest.mark.parametrize("text", ["", "/kafka", "a:b", "a:0", "a:65536", ":2181", "::1", "a:1//b", "a:1/../b", "a:²"])
def test_what_is_no_address_is_reported_with_the_form_of_one(text: str) -> None:
    with pytest.raises(ZkAddressError, match=r"127\.0\.0\.1:2181/kafka"):
        ZkAddress.parse(text)
