"""Quotas of clients (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan
from typing import Any

from ottla.client.admin.model import DEFAULT_NAME, ClientQuotaEntity, ClientQuotaFilterComponent
from ottla.client.admin.outcomes import AdminCalls, Outcomes
from ottla.client.errors import BrokerError
from ottla.peer.arguments import mapping, one_of, several, text
from ottla.peer.errors import InvalidArgumentError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_TYPES = {"user": "user", "client-id": "client_id", "ip": "ip"}
_EXACT, _DEFAULT, _ANY = range(3)
Values = dict[str, float]


class QuotaAdmin(AdminCalls):
    """Admin calls about quotas."""

    async def describe_client_quotas(
        self,
        components: Iterable[ClientQuotaFilterComponent] = (),
        *,
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ClientQuotaEntity, Values]:
        """Return quotas by entity, of those that have each of these types; with `strict` no other types.

        Raises BrokerError with the broker's reason (INVALID_REQUEST).
        """
        wanted = [_component(each) for each in several("components", components)]
        request = DescribeClientQuotasRequest(components=wanted, strict=bool(strict))

        async def attempt() -> dict[ClientQuotaEntity, Values]:
            answer: DescribeClientQuotasResponse = await self._cluster.request_any(request)
            if answer.error_code:
                raise BrokerError(answer.error_code, "quotas cannot be described", answer.error_message)
            return {
                _entity({each.entity_type: each.entity_name for each in entry.entity}): {
                    each.key: each.value for each in entry.values
                }
                for entry in answer.entries or ()
            }

        return await self._cluster.retry("describing quotas", attempt, timeout_ms)

    async def alter_client_quotas(
        self,
        quotas: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Set quotas of entities, and remove those that are None; others stay. Those of an entity all or none.

        Raises BrokerError with the broker's reason (INVALID_REQUEST), PartlyFailedError for several entities.
        """
        wanted = {
            _checked(entity): [_op(*each) for each in mapping("the quotas of an entity", values).items()]
            for entity, values in mapping("quotas", quotas).items()
        }
        outcomes: Outcomes[ClientQuotaEntity, None] = Outcomes("changing quotas", wanted)

        async def attempt(pending: list[ClientQuotaEntity]) -> None:
            entries = [EntryData(entity=_parts(entity), ops=wanted[entity]) for entity in pending]
            answer: AlterClientQuotasResponse = await self._cluster.request_any(
                AlterClientQuotasRequest(entries=entries, validate_only=bool(validate_only))
            )
            for result in answer.entries:
                entity = _entity({each.entity_type: each.entity_name for each in result.entity})
                if result.error_code == ErrorCode.NONE:
                    outcomes.succeed(entity, None)
                else:
                    what = f"the quotas of {entity} are not changed"
                    outcomes.fail(entity, BrokerError(result.error_code, what, result.error_message))
            outcomes.check_answered(pending)

        await outcomes.work_off(self._cluster, attempt, timeout_ms)


def _component(each: ClientQuotaFilterComponent) -> ComponentData:
    if not isinstance(each, ClientQuotaFilterComponent):
        raise InvalidArgumentError("a component is a ClientQuotaFilterComponent")
    kind = one_of("an entity type", each.entity_type, _TYPES)
    if each.match is None:
        return ComponentData(entity_type=kind, match_type=_ANY, match=None)
    if each.match == DEFAULT_NAME:
        return ComponentData(entity_type=kind, match_type=_DEFAULT, match=None)
    return ComponentData(entity_type=kind, match_type=_EXACT, match=text("a name", each.match))


def _checked(entity: Any) -> ClientQuotaEntity:
    if not isinstance(entity, ClientQuotaEntity):
        raise InvalidArgumentError("an entity is a ClientQuotaEntity, as in ClientQuotaEntity(user='alice')")
    for name in entity:
        if name is not None:
            text("the name of an entity", name)
    return entity


def _op(key: Any, value: Any) -> OpData:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidArgumentError(f"a quota is a number, or None to remove it, not {value!r}")
    text("the key of a quota", key)
    try:
        return OpData(key=key, value=nan if value is None else float(value), remove=value is None)
    except OverflowError:
        raise InvalidArgumentError(f"the quota {key} is too large") from None


def _parts(entity: ClientQuotaEntity) -> list[EntityData]:
    return [
        EntityData(entity_type=kind, entity_name=None if name == DEFAULT_NAME else name)
        for kind, name in zip(_TYPES, entity, strict=True)
        if name is not None
    ]


def _entity(parts: Mapping[str, str | None]) -> ClientQuotaEntity:
    names = {_TYPES[kind]: DEFAULT_NAME if name is None else name for kind, name in parts.items() if kind in _TYPES}
    return ClientQuotaEntity(**names)
