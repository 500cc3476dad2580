"""IncrementalAlterConfigs (key 44): single settings of topics and brokers set, removed, extended or cut (KIP-339).

Versions: 1 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class AlterableConfig(Struct):
    """A change of a setting: 0 set, 1 delete (back to the default), 2 append to a list, 3 subtract from it."""

    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable_since=0, default=None)


@struct
class AlterConfigsResource(Struct):
    """A topic (type 2), broker (4) or broker logger (8) and the changes of its settings."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@message(versions=(0, 1), flexible_since=1, api_key=44)
class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


@message(versions=(0, 1), flexible_since=1, api_key=44)
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
