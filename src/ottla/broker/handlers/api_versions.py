"""ApiVersions (key 18), versions 0-4: which APIs and versions the broker serves.

1 adds the throttle time; 3 is flexible and adds the client's software name and version (KIP-511); 4 fixes features
whose minimum version is 0. An unknown version is answered in version 0 with `UNSUPPORTED_VERSION` and our range of
ApiVersions itself, so that a newer client can retry.
"""

from __future__ import annotations

import re
import struct
from functools import cache

from ottla.broker.authorization import Accesses
from ottla.broker.context import RequestContext
from ottla.broker.served import SERVED
from ottla.wire.codec import encode
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import RequestHeader
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

#: The version of the features node in ZooKeeper, which names no features.
FEATURES_EPOCH = 0

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_HEAD = struct.Struct(">ii")


def accesses(context: RequestContext, request: ApiVersionsRequest) -> Accesses:
    """No access is needed."""
    return ()


def handle(context: RequestContext, request: ApiVersionsRequest) -> None:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            context.reply(ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST), api_keys=[]))
            return
        context.client_state.software_name = name
        context.client_state.software_version = version
    if context.throttle_ms or context.charge is not None:
        context.reply(_served())
    else:
        context.reply_body(_encoded(context.api_version))


def unsupported_version(header: RequestHeader) -> bytes:
    """The whole response frame for an ApiVersions request of an unknown version."""
    own = SERVED[header.api_key]
    response = ApiVersionsResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION),
        api_keys=[ApiVersion(api_key=header.api_key, min_version=own.min_version, max_version=own.max_version)],
    )
    body = encode(response, 0)
    return _HEAD.pack(len(body) + 4, header.correlation_id) + body


@cache
def _encoded(version: int) -> bytes:
    """The response body, which is the same for all clients."""
    return encode(_served(), version)


def _served() -> ApiVersionsResponse:
    table = [
        ApiVersion(api_key=key, min_version=served.min_version, max_version=served.max_version)
        for key, served in SERVED.items()
    ]
    return ApiVersionsResponse(error_code=0, api_keys=table, finalized_features_epoch=FEATURES_EPOCH)
