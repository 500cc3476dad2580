"""ApiVersions (key 18): which APIs and versions the other side speaks.

The response header never gets tagged fields, so that any client can read it; a request of an unknown version is
answered in version 0 with UNSUPPORTED_VERSION and our range for this API (KIP-511).

Versions: 1 throttle time; 3 flexible, the client's software, features (KIP-584); 4 allows features to start at 0.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 4), flexible_since=3, api_key=18)
class ApiVersionsRequest(Message):
    client_software_name: str = field(STRING, since=3, ignorable=True)
    client_software_version: str = field(STRING, since=3, ignorable=True)


@struct
class FinalizedFeatureKey(Struct):
    """A feature that the cluster has agreed on."""

    name: str = field(STRING, since=3)
    max_version_level: int = field(INT16, since=3)
    min_version_level: int = field(INT16, since=3)


@struct
class SupportedFeatureKey(Struct):
    name: str = field(STRING, since=3)
    min_version: int = field(INT16, since=3)
    max_version: int = field(INT16, since=3)


@struct
class ApiVersion(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@message(versions=(0, 4), flexible_since=3, api_key=18)
class ApiVersionsResponse(Message):
    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(array(SupportedFeatureKey), since=3, tag=0, ignorable=True)
    finalized_features_epoch: int = field(INT64, since=3, default=-1, tag=1, ignorable=True)  # -1 when unknown.
    finalized_features: list[FinalizedFeatureKey] = field(array(FinalizedFeatureKey), since=3, tag=2, ignorable=True)
    zk_migration_ready: bool = field(BOOL, since=3, tag=3, ignorable=True)
