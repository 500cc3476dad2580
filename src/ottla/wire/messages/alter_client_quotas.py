"""AlterClientQuotas (key 49): set and remove quotas of entities (KIP-546). Version 1 is flexible."""

from __future__ import annotations

from ottla.wire.schema import BOOL, FLOAT64, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable_since=0, default=None)  # Null: the default.


@struct
class OpData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


@struct
class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


@message(versions=(0, 1), flexible_since=1, api_key=49)
class AlterClientQuotasRequest(Message):
    entries: list[EntryData] = field(array(EntryData))
    validate_only: bool = field(BOOL)


@struct
class AlterClientQuotasResponseEntryData(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    entity: list[EntityData] = field(array(EntityData))


@message(versions=(0, 1), flexible_since=1, api_key=49)
class AlterClientQuotasResponse(Message):
    throttle_time_ms: int = field(INT32)
    entries: list[AlterClientQuotasResponseEntryData] = field(array(AlterClientQuotasResponseEntryData))
