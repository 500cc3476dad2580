"""AlterConfigs (key 33): all settings of topics and brokers, replaced as a whole.

Versions: 1 throttle time after the answer; 2 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class AlterableConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0, default=None)


@struct
class AlterConfigsResource(Struct):
    """A topic (type 2), broker (4) or broker logger (8) and everything it is to set itself."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@message(versions=(0, 2), flexible_since=2, api_key=33)
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


@message(versions=(0, 2), flexible_since=2, api_key=33)
class AlterConfigsResponse(Message):
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
