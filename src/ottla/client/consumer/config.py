"""Settings of a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ottla.client.errors import InvalidArgumentError
from ottla.client.settings import ClientSettings


@dataclass(slots=True, frozen=True)
class ConsumerConfig:
    """One attribute per setting."""

    bootstrap_servers: str
    group_id: str | None = None
    client_id: str = "ottla"
    client_rack: str = ""
    auto_offset_reset: str = "latest"
    isolation_level: str = "read_uncommitted"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5000
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52428800
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1048576
    check_crcs: bool = True
    allow_auto_create_topics: bool = True
    exclude_internal_topics: bool = True
    metadata_max_age_ms: int = 300_000
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    key_deserializer: Any = None
    value_deserializer: Any = None

    @property
    def client_settings(self) -> ClientSettings:
        """What every client needs."""
        return ClientSettings(
            self.bootstrap_servers,
            self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            default_api_timeout_ms=self.default_api_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            metadata_max_age_ms=self.metadata_max_age_ms,
        )


def parse_consumer_config(config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> ConsumerConfig:
    """The settings from Kafka's names and keywords."""
    given = {name.replace(".", "_"): value for name, value in (config or {}).items()} | dict(keywords)
    known = {each.name for each in fields(ConsumerConfig)}
    if unknown := given.keys() - known:
        raise InvalidArgumentError(f"unknown settings {sorted(unknown)}")
    return ConsumerConfig(**given)
