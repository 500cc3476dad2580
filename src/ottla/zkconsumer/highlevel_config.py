"""The configuration of a high-level consumer, parsed and checked.

Names, types and defaults are those of Apache Kafka 0.8.2.2's `kafka.consumer.ConsumerConfig` and
`kafka.utils.ZKConfig`. Two differ: `socket.receive.buffer.bytes` is left to the operating system, which adapts it, and
`rebalance.backoff.ms` stands by itself (there it is `zookeeper.sync.time.ms`, whose default is the same). Those that
start with `ottla.` are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ottla.client.configs.settings import attribute_of
from ottla.client.errors import InvalidConfigError
from ottla.config.settings import SECTIONS, Setting
from ottla.config.values import ConfigError, invalid, parse_value
from ottla.peer.settings import ConnectionSettings
from ottla.wire.strings import too_long

KIND = "high-level consumer"
SETTINGS = SECTIONS[KIND]
"""Every setting of the high-level consumer, by name."""
OF_NEWER_CONSUMERS = {
    "bootstrap.servers": "brokers are found in ZooKeeper: give zookeeper.connect",
    "enable.auto.commit": "here it is auto.commit.enable",
    "fetch.max.bytes": "the limit of one partition is fetch.message.max.bytes",
    "fetch.max.wait.ms": "here it is fetch.wait.max.ms",
    "group.instance.id": "this generation has no static members",
    "isolation.level": "this generation reads what is not committed, too",
    "key.deserializer": "give key_decoder to create_message_streams",
    "max.partition.fetch.bytes": "here it is fetch.message.max.bytes",
    "max.poll.interval.ms": "streams are not polled; a consumer lives as long as its session with ZooKeeper",
    "max.poll.records": "streams are not polled",
    "metadata.max.age.ms": "leaders are looked for when they have changed, see refresh.leader.backoff.ms",
    "receive.buffer.bytes": "here it is socket.receive.buffer.bytes",
    "request.timeout.ms": "here it is socket.timeout.ms",
    "retry.backoff.ms": "see refresh.leader.backoff.ms, rebalance.backoff.ms and offsets.channel.backoff.ms",
    "session.timeout.ms": "here it is zookeeper.session.timeout.ms",
    "value.deserializer": "give value_decoder to create_message_streams",
}
"""The cure for each setting of the newer consumer."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
_NAMES = ("group.id", "client.id", "consumer.id")
_OTHER_RESETS = {"earliest": "smallest", "latest": "largest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HighLevelConsumerConfig:
    """All settings of a high-level consumer; docs/client-highlevel.md says what each means.

    Times are in milliseconds, sizes in bytes. Made by `parse_highlevel_config`.
    """

    auto_commit_enable: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    client_id: str
    consumer_id: str | None
    consumer_timeout_ms: int
    dual_commit_enabled: bool
    exclude_internal_topics: bool
    fetch_message_max_bytes: int
    fetch_min_bytes: int
    fetch_wait_max_ms: int
    group_id: str
    num_consumer_fetchers: int
    offsets_channel_backoff_ms: int
    offsets_channel_socket_timeout_ms: int
    offsets_commit_max_retries: int
    offsets_storage: str
    ottla_watch_brokers: str
    ottla_zookeeper_config: str | None
    partition_assignment_strategy: str
    queued_max_message_chunks: int
    rebalance_backoff_ms: int
    rebalance_max_retries: int
    refresh_leader_backoff_ms: int
    socket_receive_buffer_bytes: int
    socket_timeout_ms: int
    zookeeper_connect: str
    zookeeper_connection_timeout_ms: int
    zookeeper_session_timeout_ms: int

    def client_settings(self, bootstrap_servers: str) -> ConnectionSettings:
        """Connection settings for the brokers found in ZooKeeper."""
        return ConnectionSettings(
            bootstrap_servers=bootstrap_servers,
            client_id=self.client_id,
            request_timeout_ms=self.socket_timeout_ms,
            default_api_timeout_ms=self.offsets_channel_socket_timeout_ms,
            retry_backoff_ms=max(self.refresh_leader_backoff_ms, 1),
            receive_buffer_bytes=self.socket_receive_buffer_bytes,
        )


def parse_highlevel_config(
    config: Mapping[str, Any] | None = None, keywords: Mapping[str, Any] | None = None
) -> HighLevelConsumerConfig:
    """The configuration out of Kafka's names and Python keywords, in either.

    Raises InvalidConfigError with all problems found.
    """
    problems: list[str] = []
    by_name: dict[str, Any] = {}
    mapping: object = config
    if mapping is not None and not isinstance(mapping, Mapping):
        raise InvalidConfigError(KIND, [f"they are a mapping, {{'group.id': 'clicks', …}}, not {config!r}"])
    for source in (config or {}, keywords or {}):
        for written, value in source.items():
            name = str(written).replace("_", ".")
            if name not in SETTINGS:
                problems.append(_unknown(written, name))
            elif name in by_name and by_name[name] != value:
                problems.append(f"{name} is given twice with different values. Give it once.")
            elif value is not None:
                by_name[name] = value
    values: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        try:
            values[name] = parse_value(setting, _text(setting, by_name[name]) if name in by_name else setting.default)
        except ConfigError as error:
            problems.append(_explained(name, by_name.get(name), error))
    problems.extend(
        f"{name} {problem}. Give a shorter one."
        for name in _NAMES
        if (problem := too_long(values.get(name) or "")) is not None
    )
    if not problems:
        _settle(values, problems)
    if problems:
        raise InvalidConfigError(KIND, problems)
    del values["zookeeper.sync.time.ms"]
    return HighLevelConsumerConfig(**{attribute_of(name): value for name, value in values.items()})


def _text(setting: Setting, value: object) -> str:
    """The text that a properties file would have for this object."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) == (setting.type == "boolean") and isinstance(value, int) and setting.type != "string":
        return str(value).lower()
    raise invalid(setting, value, f"Expected {setting.type}, not {type(value).__name__}")


def _explained(name: str, value: object, error: ConfigError) -> str:
    if name == "auto.offset.reset" and value in _OTHER_RESETS:
        return f"auto.offset.reset={value}: in this generation the word for it is {_OTHER_RESETS[str(value)]}."
    setting = SETTINGS[name]
    valid = f" Valid: {setting.valid}." if setting.valid else ""
    default = f" The default is {setting.default}." if setting.default else ""
    return f"{error}.{valid}{default}"


def _unknown(written: object, name: str) -> str:
    if name in OF_NEWER_CONSUMERS:
        return f"{written} is a setting of newer consumers; {OF_NEWER_CONSUMERS[name]}."
    close = get_close_matches(name, SETTINGS, n=1)
    hint = f"did you mean {close[0]}?" if close else "docs/client-highlevel.md lists those that there are."
    return f"{written} is not a setting of the high-level consumer; {hint}"


def _settle(values: dict[str, Any], problems: list[str]) -> None:
    """Defaults that are other settings, and the rules between them, in place."""
    for name, cure in (
        ("group.id", "Give the consumer's group a name"),
        ("zookeeper.connect", "Give it as host:port,host:port/chroot"),
    ):
        if not values[name] or not values[name].strip():
            problems.append(f"{name} is missing. {cure}.")
    problems.extend(
        f"{name}={values[name]} is not possible: it consists of letters of ASCII, digits, '.', '_' and '-'."
        for name in _NAMES
        if values[name] and not _LEGAL.match(values[name])
    )
    for name, other in (
        ("client.id", "group.id"),
        ("zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms"),
        ("rebalance.backoff.ms", "zookeeper.sync.time.ms"),
    ):
        if values[name] is None:
            values[name] = values[other]
    if values["dual.commit.enabled"] is None:
        values["dual.commit.enabled"] = values["offsets.storage"] == "kafka"
    if values["socket.timeout.ms"] <= values["fetch.wait.max.ms"]:
        problems.append(
            f"socket.timeout.ms={values['socket.timeout.ms']} is not longer than fetch.wait.max.ms="
            f"{values['fetch.wait.max.ms']}, so that fetches of quiet partitions would fail. Raise it."
        )
