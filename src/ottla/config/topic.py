"""The configuration of a topic's log: the broker's settings, and over them the topic's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from ottla.config import rules
from ottla.config.broker import BrokerConfig, ConfigRefusal
from ottla.config.settings import TOPIC_SETTINGS, TOPIC_SYNONYMS
from ottla.config.values import ConfigError, Value, parse_value

LONGEST = 9223372036854775807

ThrottledReplicas: TypeAlias = bool | frozenset[tuple[int, int]]
"""Replicas as partition and broker id; True for all of them, False for none."""

NO_TIERED_STORAGE = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)


class LogConfig:
    """Settings of a partition's log, typed; the attributes are the topic settings' names with underscores.

    `values` holds all of them by name, `overrides` what the topic itself sets, as text.
    """

    __slots__ = (
        "cleanup_policy", "compact", "compression_gzip_level", "compression_lz4_level", "compression_type",
        "compression_zstd_level", "delete_retention_ms", "file_delete_delay_ms", "flush_messages", "flush_ms",
        "follower_throttled", "index_interval_bytes", "leader_throttled", "max_compaction_lag_ms",
        "max_message_bytes", "message_downconversion_enable",
        "message_timestamp_after_max_ms", "message_timestamp_before_max_ms", "message_timestamp_type",
        "min_cleanable_dirty_ratio", "min_compaction_lag_ms", "min_insync_replicas", "overrides", "preallocate",
        "reads_records", "retention_bytes", "retention_ms", "segment_bytes", "segment_index_bytes", "segment_jitter_ms",
        "segment_ms",
        "unclean_leader_election_enable", "values",
    )  # fmt: skip

    if TYPE_CHECKING:
        segment_bytes: int
        segment_ms: int
        segment_jitter_ms: int
        segment_index_bytes: int
        index_interval_bytes: int
        max_message_bytes: int
        retention_ms: int
        retention_bytes: int
        cleanup_policy: tuple[str, ...]
        compression_type: str
        compression_gzip_level: int
        compression_lz4_level: int
        compression_zstd_level: int
        message_downconversion_enable: bool
        message_timestamp_type: str
        message_timestamp_before_max_ms: int
        message_timestamp_after_max_ms: int
        flush_messages: int
        flush_ms: int
        min_insync_replicas: int
        file_delete_delay_ms: int
        preallocate: bool
        delete_retention_ms: int
        min_compaction_lag_ms: int
        max_compaction_lag_ms: int
        min_cleanable_dirty_ratio: float
        unclean_leader_election_enable: bool

    def __init__(self, values: dict[str, Value], overrides: Mapping[str, str]) -> None:
        self.values = values
        self.overrides = dict(overrides)
        for name in _ATTRIBUTES:
            value = values[name]
            setattr(self, name.replace(".", "_"), tuple(value) if isinstance(value, list) else value)
        #: Whether the log is compacted.
        self.compact: bool = "compact" in self.cleanup_policy
        #: Replicas whose copying is limited, at the leader's side and at the follower's (KIP-73).
        self.leader_throttled: ThrottledReplicas = _throttled(values["leader.replication.throttled.replicas"])
        self.follower_throttled: ThrottledReplicas = _throttled(values["follower.replication.throttled.replicas"])
        self._apply_older_timestamp_bound()
        #: Whether batches cannot be appended as they come: their records are looked at, or recompressed.
        self.reads_records: bool = (
            self.compact
            or self.compression_type != "producer"
            or self.message_timestamp_type != "CreateTime"
            or min(self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms) < LONGEST
        )

    def _apply_older_timestamp_bound(self) -> None:
        """`message.timestamp.difference.max.ms` holds in each direction that has no bound of its own (KIP-937)."""
        difference = self.values["message.timestamp.difference.max.ms"]
        assert isinstance(difference, int)
        if self.message_timestamp_before_max_ms == LONGEST:
            self.message_timestamp_before_max_ms = difference
        if self.message_timestamp_after_max_ms == LONGEST:
            self.message_timestamp_after_max_ms = difference

    @property
    def delete(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @staticmethod
    def of(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig | ConfigRefusal:
        """The configuration of a topic that is to set `overrides`; a refusal in Kafka's words for bad ones."""
        config, problems = LogConfig.in_force(broker, overrides)
        problems = problems or _broken_rules(config.values)
        return ConfigRefusal(problems) if problems else config

    @staticmethod
    def in_force(broker: BrokerConfig, overrides: Mapping[str, str]) -> tuple[LogConfig, list[str]]:
        """The effective settings of a topic with `overrides`, and the problems of those that are ignored.

        Unlike `of` it takes settings that only together break a rule: the broker's may have changed since the topic
        got its own. Topics that set nothing share one object.
        """
        inherited = broker.topic_defaults
        if inherited is None:
            inherited = LogConfig({name: _inherited(broker, name) for name in TOPIC_SETTINGS}, {})
            broker.topic_defaults = inherited
        if not overrides:
            return inherited, []
        values = inherited.values.copy()
        taken: dict[str, str] = {}
        problems = []
        for name, text in overrides.items():
            setting = TOPIC_SETTINGS.get(name)
            if setting is None:
                problems.append(f"Unknown topic config name: {name}")
                continue
            try:
                values[name] = parse_value(setting, text)
                taken[name] = text
            except ConfigError as error:
                problems.append(f"{error}")
        return LogConfig(values, taken), problems


def _throttled(value: Value) -> ThrottledReplicas:
    """Replicas of `partition:broker,...` or `*`."""
    if not value:
        return False
    assert isinstance(value, list)
    if "".join(value) == "*":
        return True
    pairs = [replica.split(":") for replica in value if replica]
    return frozenset((int(partition), int(broker)) for partition, broker in pairs)


_ATTRIBUTES = tuple(name for name in TOPIC_SETTINGS if name.replace(".", "_") in LogConfig.__slots__)


def _inherited(broker: BrokerConfig, name: str) -> Value:
    """The topic's value where it has no override."""
    if name == "retention.ms":
        return rules.retention_ms(broker)
    if name == "segment.ms":
        return rules.roll_ms(broker)
    if name == "segment.jitter.ms":
        return rules.roll_jitter_ms(broker)
    if name == "flush.ms":
        return rules.flush_ms(broker)
    synonyms = TOPIC_SYNONYMS.get(name)
    if synonyms is not None:
        return broker.value(synonyms[0])
    setting = TOPIC_SETTINGS[name]
    return parse_value(setting, setting.default)


def _broken_rules(values: dict[str, Value]) -> list[str]:
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(shortest, int)
    assert isinstance(longest, int)
    if shortest > longest:
        return [f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"]
    if values["remote.log.copy.disable"] or values["remote.log.delete.on.disable"]:
        return [
            "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."
        ]
    if values["remote.storage.enable"]:
        return [NO_TIERED_STORAGE]
    return []
