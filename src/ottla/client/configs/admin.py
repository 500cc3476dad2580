"""The configuration of an admin client.

Sources: Apache Kafka 3.9's AdminClientConfig and KafkaAdminClient, for names, defaults and the rules between settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.client.configs.base import ClientConfig, made, settle_client_id, settle_common
from ottla.client.configs.draft import ConfigDraft
from ottla.client.configs.settings import ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """All settings of an admin client."""

    bootstrap_controllers: tuple[str, ...]
    default_api_timeout_ms: int
    retries: int


def parse_admin_config(config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> AdminConfig:
    """Parse the mapping and the keywords; both may use Kafka's names (client.id) or Python's (client_id).

    Raises InvalidConfigError with all problems.
    """
    draft = ConfigDraft(ADMIN, config, keywords)
    settle_common(draft)
    if not draft.problems:
        _settle_api_timeout(draft)
    settle_client_id(draft, "adminclient")
    return made(AdminConfig, draft)


def _settle_api_timeout(draft: ConfigDraft) -> None:
    """The timeout of a call must not be below that of one request."""
    whole, request = draft.values["default.api.timeout.ms"], draft.values["request.timeout.ms"]
    if whole >= request:
        return
    if draft.is_set("default.api.timeout.ms"):
        draft.problems.append(
            f"default.api.timeout.ms={whole} is shorter than request.timeout.ms={request}. Raise it, or lower "
            "request.timeout.ms."
        )
    else:
        draft.values["default.api.timeout.ms"] = request
