"""DescribeClientQuotas (key 48): the quotas of the entities that a filter finds (KIP-546). Version 1 is flexible."""

from __future__ import annotations

from ottla.wire.schema import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class ComponentData(Struct):
    entity_type: str = field(STRING)
    match_type: int = field(INT8)  # 0 this name, 1 the default, 2 any name and the default.
    match: str | None = field(STRING, nullable_since=0, default=None)


@message(versions=(0, 1), flexible_since=1, api_key=48)
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData] = field(array(ComponentData))
    strict: bool = field(BOOL)  # Whether entities of further types are left out.


@struct
class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable_since=0, default=None)  # Null: the default.


@struct
class ValueData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)


@struct
class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    values: list[ValueData] = field(array(ValueData))


@message(versions=(0, 1), flexible_since=1, api_key=48)
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    entries: list[EntryData] | None = field(array(EntryData), nullable_since=0)
