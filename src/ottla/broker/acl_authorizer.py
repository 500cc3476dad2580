"""The authorizer that decides by ACLs, and its log: denied accesses at INFO, allowed ones at DEBUG, as in Kafka."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.broker.authorization import Access, Fallback
from ottla.cluster.acls import AclRules
from ottla.config.rules import super_users
from ottla.wire.apis import API

if TYPE_CHECKING:
    from ottla.cluster.acls import ResourceType
    from ottla.config.broker import BrokerConfig
    from ottla.net.connection import Principal

#: Kafka's `kafka.authorizer.logger`.
log = logging.getLogger("ottla.authorizer")

#: IPv6 addresses whose text is kept.
MOST_ADDRESSES = 1024


class AclAuthorizer:
    """Decides by the ACLs in `rules` (`authorization.Authorizer`)."""

    def __init__(self, rules: AclRules) -> None:
        self._rules = rules

    def permitted(
        self, principal: Principal, host: str, accesses: Iterable[Access], api_key: int
    ) -> Collection[Access]:
        """See `Authorizer.permitted`; logs what is denied."""
        who, where = str(principal), _java_host(host)
        logs_allowed = log.isEnabledFor(logging.DEBUG)
        found = []
        for access in accesses:
            if self._allows(who, where, access):
                found.append(access)
                if logs_allowed:
                    _log(logging.DEBUG, "Allowed", who, where, access, api_key)
            elif type(access) is Access or (isinstance(access, Fallback) and self._is_needed(who, where, access)):
                _log(logging.INFO, "Denied", who, where, access, api_key)
        return found

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """See `Authorizer.operations`."""
        return self._rules.allowed_operations(str(principal), _java_host(host), resource_type, name)

    def _is_needed(self, who: str, host: str, access: Fallback) -> bool:
        with_it = access.only_with is None or self._allows(who, host, access.only_with)
        return with_it and not self._allows(who, host, access.instead_of)

    def _allows(self, who: str, host: str, access: Access) -> bool:
        operation, resource_type, name = access
        if name is None:
            return self._rules.allows_on_any(who, host, operation, resource_type)
        return self._rules.allows(who, host, operation, resource_type, name)


def acl_rules(config: BrokerConfig) -> AclRules:
    """The rules of a broker with an authorizer, without ACLs."""
    allows_without_acls = config.get_boolean("allow.everyone.if.no.acl.found")
    return AclRules(super_users(config.get_string("super.users")), allows_without_acls=allows_without_acls)


def _log(level: int, result: str, who: str, host: str, access: Access, api_key: int) -> None:
    operation, resource_type, name = access
    resource = "UNKNOWN:NONE" if name is None else f"LITERAL:{_one_line(name)}"
    log.log(
        level,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:%s for request = %s",
        _one_line(who),
        result,
        operation.kafka_name,
        host,
        resource_type.kafka_name,
        resource,
        API[api_key].name,
    )


def _one_line(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _java_host(host: str) -> str:
    """An address as Java writes it, and so as ACLs name it: nothing is left out of IPv6 addresses."""
    return _java_ipv6(host) if ":" in host else host


@lru_cache(MOST_ADDRESSES)
def _java_ipv6(host: str) -> str:
    from ipaddress import IPv6Address  # not at the start of every broker: it takes a millisecond

    address, percent, zone = host.partition("%")
    parsed = IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in parsed.exploded.split(":")) + percent + zone
