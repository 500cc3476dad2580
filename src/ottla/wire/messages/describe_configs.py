"""DescribeConfigs (key 32): the settings of topics and brokers with their origin.

Versions: 1 source and synonyms (KIP-226); 3 type and documentation (KIP-569); 4 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class DescribeConfigsResource(Struct):
    """A topic (type 2), broker (4) or broker logger (8)."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(array(STRING), nullable_since=0)  # None for all.


@message(versions=(0, 4), flexible_since=4, api_key=32)
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL, since=1)
    include_documentation: bool = field(BOOL, since=3)


@struct
class DescribeConfigsSynonym(Struct):
    """A possible source of a value, in the order of precedence."""

    name: str = field(STRING, since=1)
    value: str | None = field(STRING, since=1, nullable_since=1, default=None)
    source: int = field(INT8, since=1)


@struct
class DescribeConfigsResourceResult(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0, default=None)
    read_only: bool = field(BOOL)
    is_default: bool = field(BOOL, until=0)
    # 1 topic, 2 dynamic broker, 3 dynamic default broker, 4 static broker, 5 default.
    config_source: int = field(INT8, since=1, default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym), since=1, ignorable=True)
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    config_type: int = field(INT8, since=3, ignorable=True)
    documentation: str | None = field(STRING, since=3, nullable_since=3, default=None, ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


@message(versions=(0, 4), flexible_since=4, api_key=32)
class DescribeConfigsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
