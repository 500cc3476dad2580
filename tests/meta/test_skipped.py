"""docs/skipped.md is true: each of its rows has a check here that fails once the thing is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.served import SERVED
from ottla.config.broker import ConfigRefusal, parse_broker_config
from ottla.config.dynamic import FIXED_AT_START
from ottla.security.jaas import JaasError
from ottla.security.zookeeper_logins import login_to_zookeeper
from ottla.wire.apis import ApiKey

PAGE = Path(__file__).resolve().parents[2] / "docs" / "skipped.md"


def missing(*keys: ApiKey) -> Callable[[], bool]:
    return lambda: all(key not in SERVED for key in keys)


def refused(**settings: str) -> Callable[[], bool]:
    properties = {name.replace("__", "."): value for name, value in settings.items()}
    return lambda: isinstance(parse_broker_config(properties), ConfigRefusal)


def _is_unread(login: str) -> bool:
    try:
        login_to_zookeeper(login)
    except JaasError:
        return True
    return False


#: The beginning of a row to what makes it true.
CHECKS: dict[str, list[Callable[[], bool]]] = {
    "the newer transaction protocol": [
        missing(ApiKey.UPDATE_FEATURES),
        lambda: SERVED[ApiKey.END_TXN].max_version == 4,
    ],
    "the newer group protocol": [missing(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT)],
    "changing `listeners`": [lambda: "listeners" in FIXED_AT_START],
    "logins to ZooKeeper by Kerberos": [
        refused(zookeeper__ssl__crl__enable="true"),
        refused(zookeeper__ssl__ocsp__enable="true"),
        lambda: _is_unread("com.sun.security.auth.module.Krb5LoginModule required;"),
    ],
    "KRaft": [refused(process__roles="broker"), missing(ApiKey.VOTE, ApiKey.DESCRIBE_QUORUM)],
}


def rows() -> list[str]:
    found = re.findall(r"^\| (.+?) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    return [row for row in found if row != "what"]


def test_every_row_has_a_check_and_every_check_a_row() -> None:
    unchecked = [row for row in rows() if not any(row.startswith(beginning) for beginning in CHECKS)]
    gone = [beginning for beginning in CHECKS if not any(row.startswith(beginning) for row in rows())]
    assert (unchecked, gone) == ([], [])


@pytest.mark.parametrize("beginning", CHECKS)
def test_what_is_said_to_be_skipped_is(beginning: str) -> None:
    assert all(check() for check in CHECKS[beginning])
