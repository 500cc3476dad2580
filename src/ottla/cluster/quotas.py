"""Quotas of clients: the entities that have them, which of them counts for a request, and their values as text.

Names, order and words are those of Apache Kafka 3.9 (`ClientQuotaManager`, `ZkAdminManager`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from math import isfinite
from typing import Final, NamedTuple

from ottla.cluster.refusal import TopicRefusal
from ottla.config.values import java_double
from ottla.wire.errors import ErrorCode


class QuotaKey(StrEnum):
    """The key of a quota: bytes a second, percent of a second, partitions a second, connections a second."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
OF_IP: Final = (QuotaKey.CONNECTION_CREATION_RATE,)
OF_CLIENT: Final = tuple(key for key in QuotaKey if key not in OF_IP)
#: The largest values of keys that are whole numbers: Java's long and int.
_WHOLE: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: ("LONG", 2**63 - 1),
    QuotaKey.CONSUMER_BYTE_RATE: ("LONG", 2**63 - 1),
    QuotaKey.CONNECTION_CREATION_RATE: ("INT", 2**31 - 1),
}
_EPSILON: Final = 1e-6
#: In place of a name: the default for all without a quota of their own, and none of this type.
DEFAULT: Final = None
ABSENT: Final = ""


class QuotaEntity(NamedTuple):
    """An entity with quotas: names of a user, a client, both, or an address; `DEFAULT` and `ABSENT` in their place."""

    user: str | None = ABSENT
    client_id: str | None = ABSENT
    ip: str | None = ABSENT

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        """The types that it has, with their names."""
        return [each for each in zip((USER, CLIENT_ID, IP), self, strict=True) if each[1] != ABSENT]


def _refused(message: str) -> TopicRefusal:
    return TopicRefusal(ErrorCode.INVALID_REQUEST, message)


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity | TopicRefusal:
    """The entity of these types and names, None for the default."""
    named = dict(parts)
    if not named:
        return _refused("Invalid empty client quota entity")
    for kind, name in named.items():
        if kind not in (USER, CLIENT_ID, IP):
            return _refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return _refused(f"Empty {kind} not supported")
    entity = QuotaEntity(named.get(USER, ABSENT), named.get(CLIENT_ID, ABSENT), named.get(IP, ABSENT))
    if entity.ip == ABSENT:
        return entity
    if len(named) > 1:
        return _refused("Invalid quota entity combination, IP entity should not be used with user/client ID entity.")
    if entity.ip is not DEFAULT and address(entity.ip) is None:
        # Apache Kafka takes names of hosts, too, and looks them up.
        return _refused(f"{entity.ip} is not a valid IP or resolvable host.")
    return entity


def address(text: str) -> str | None:
    """An IP address as connections have it, whichever way it is written; None for anything else."""
    from ipaddress import ip_address  # not at the start of every broker: it takes a millisecond

    try:
        return str(ip_address(text))
    except ValueError:
        return None


def changed(
    entity: QuotaEntity, present: Mapping[str, str], ops: Iterable[tuple[str, float | None]]
) -> dict[str, str] | TopicRefusal:
    """The settings of an entity after these changes; None removes a key."""
    wanted = dict(present)
    keys = OF_IP if entity.ip != ABSENT else OF_CLIENT
    for name, value in ops:
        if value is None:
            wanted.pop(name, None)
            continue
        if name not in keys:
            return _refused(f"Invalid configuration key {name}")
        key = QuotaKey(name)
        if key not in _WHOLE:
            wanted[key.value] = java_double(value)
            continue
        kind, largest = _WHOLE[key]
        whole = int(value + _EPSILON) if isfinite(value) else None
        if whole is None or abs(whole - value) > _EPSILON or abs(whole) > largest:
            return _refused(f"Configuration {name} must be a {kind} value")
        if entity.ip != ABSENT and whole < 0:
            return TopicRefusal(
                ErrorCode.INVALID_CONFIG, f"Invalid value {whole} for configuration {name}: Value must be at least 0"
            )
        wanted[key.value] = str(whole)
    return wanted


def quotas_in(settings: Mapping[str, str]) -> dict[str, float]:
    """The quotas among an entity's settings. Raises ValueError for a value that is not a number."""
    return {key.value: float(settings[key]) for key in QuotaKey if key in settings}


def candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, tuple[str, str]]]:
    """The entities whose quota may count for a client, the first that has one does; and who shares it.

    A user's quota is shared by all clients of the user, a client's by all users without one.
    """
    if client_id:
        yield QuotaEntity(user, client_id), (user, client_id)
        yield QuotaEntity(user, DEFAULT), (user, client_id)
    yield QuotaEntity(user), (user, ABSENT)
    if client_id:
        yield QuotaEntity(DEFAULT, client_id), (user, client_id)
        yield QuotaEntity(DEFAULT, DEFAULT), (user, client_id)
    yield QuotaEntity(DEFAULT), (user, ABSENT)
    if client_id:
        yield QuotaEntity(client_id=client_id), (ABSENT, client_id)
        yield QuotaEntity(client_id=DEFAULT), (ABSENT, client_id)


class ComponentFilter(NamedTuple):
    """Finds entities by one of their types: `match` is a name, `DEFAULT`, or `ABSENT` for any of the type."""

    entity_type: str
    match: str | None = ABSENT


def filter_of(components: Iterable[ComponentFilter]) -> dict[str, str | None] | TopicRefusal:
    """The match of each type that a filter names; a refusal in Kafka's words."""
    wanted: dict[str, str | None] = {}
    for kind, match in components:
        if kind == "":
            return _refused("Unexpected empty filter component entity type")
        if kind not in (USER, CLIENT_ID, IP):
            return TopicRefusal(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in wanted:
            return _refused(f"Duplicate {'client' if kind == CLIENT_ID else kind} filter component entity type")
        wanted[kind] = match
    if IP in wanted and len(wanted) > 1:
        return _refused(
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component."
        )
    return wanted


def is_found(entity: QuotaEntity, wanted: Mapping[str, str | None], *, strict: bool) -> bool:
    """Whether a filter finds an entity; a strict one only if it names all of the entity's types."""
    parts = dict(entity.parts)
    if any(kind not in parts or match not in (ABSENT, parts[kind]) for kind, match in wanted.items()):
        return False
    return not strict or parts.keys() <= wanted.keys()
