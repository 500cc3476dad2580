"""The options of file systems in the words of the Rust library object_store, which deltalake uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: pyarrow's names of S3's settings.
_NAMES: Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "anonymous": "AWS_SKIP_SIGNATURE",
    "endpoint_override": "AWS_ENDPOINT_URL",
    "force_virtual_addressing": "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "region": "AWS_REGION",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


def object_store_options(options: Mapping[str, str]) -> dict[str, str]:
    """These options, S3's by other names; others as they are."""
    made = {_NAMES.get(name, name): value for name, value in options.items() if name != "scheme"}
    endpoint = made.get("AWS_ENDPOINT_URL")
    if endpoint is not None:
        if "://" not in endpoint:
            endpoint = made["AWS_ENDPOINT_URL"] = f"{options.get('scheme', 'https')}://{endpoint}"
        if endpoint.startswith("http:"):
            made.setdefault("AWS_ALLOW_HTTP", "true")
    return made
