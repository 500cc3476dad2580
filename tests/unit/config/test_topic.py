from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig, ConfigRefusal, parse_broker_config
from ottla.config.topic import LONGEST, LogConfig


def log_config(broker: dict[str, str] | None = None, **overrides: str) -> LogConfig:
    config = parse_broker_config(broker or {})
    assert isinstance(config, BrokerConfig)
    result = LogConfig.of(config, {name.replace("_", "."): value for name, value in overrides.items()})
    assert isinstance(result, LogConfig)
    return result


@pytest.mark.spec("L3", "L4")
def test_defaults_are_kafkas() -> None:
    config = log_config()
    assert (config.segment_bytes, config.segment_ms) == (1 << 30, 7 * 24 * 3_600_000)
    assert (config.retention_ms, config.retention_bytes) == (7 * 24 * 3_600_000, -1)
    assert config.cleanup_policy == ("delete",)
    assert (config.delete, config.compact) == (True, False)
    assert (config.flush_messages, config.flush_ms) == (LONGEST, LONGEST)


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_time_has_three_settings(broker: dict[str, str], retention_ms: int) -> None:
    assert log_config(broker).retention_ms == retention_ms


def test_rolling_and_flushing_have_synonyms() -> None:
    config = log_config({"log.roll.hours": "2", "log.roll.jitter.hours": "1", "log.flush.scheduler.interval.ms": "9"})
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (7_200_000, 3_600_000, 9)
    config = log_config({"log.roll.ms": "5", "log.roll.jitter.ms": "4", "log.flush.interval.ms": "3"})
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (5, 4, 3)


def test_a_topics_own_settings_win() -> None:
    config = log_config({"log.segment.bytes": "1000"}, segment_bytes="2000", cleanup_policy="compact,delete")
    assert config.segment_bytes == 2000
    assert (config.delete, config.compact) == (True, True)
    assert config.overrides == {"segment.bytes": "2000", "cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("overrides", "bounds"),
    [
        ({}, (LONGEST, LONGEST)),
        ({"message_timestamp_difference_max_ms": "5"}, (5, 5)),
        ({"message_timestamp_difference_max_ms": "5", "message_timestamp_before_max_ms": "7"}, (7, 5)),
    ],
)
def test_the_older_bound_of_timestamps_fills_in(overrides: dict[str, str], bounds: tuple[int, int]) -> None:
    config = log_config(**overrides)
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == bounds


def test_all_problems_are_reported() -> None:
    broker = parse_broker_config({})
    assert isinstance(broker, BrokerConfig)
    refusal = LogConfig.of(broker, {"segment.bytes": "1", "nope": "1"})
    assert isinstance(refusal, ConfigRefusal)
    assert refusal.problems == [
        "Invalid value 1 for configuration segment.bytes: Value must be at least 14",
        "Unknown topic config name: nope",
    ]


def test_topics_that_set_nothing_share_what_they_inherit() -> None:
    broker = BrokerConfig({}, {}, {})
    first, problems = LogConfig.in_force(broker, {})
    assert problems == []
    assert LogConfig.in_force(broker, {})[0] is first
    broker.set_dynamic({"log.retention.ms": "600"}, {})
    assert LogConfig.in_force(broker, {})[0].retention_ms == 600
    assert first.retention_ms == 604_800_000


def test_what_was_taken_before_holds_where_a_change_of_the_brokers_breaks_a_rule() -> None:
    broker = BrokerConfig({}, {}, {})
    broker.set_dynamic({"log.cleaner.max.compaction.lag.ms": "5"}, {})
    overrides = {"min.compaction.lag.ms": "10", "retention.ms": "x", "nonsense": "1"}
    config, problems = LogConfig.in_force(broker, overrides)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms, config.retention_ms) == (10, 5, 604_800_000)
    assert problems == [
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
        "Unknown topic config name: nonsense",
    ]
    assert isinstance(LogConfig.of(broker, {"min.compaction.lag.ms": "10"}), ConfigRefusal)


@pytest.mark.parametrize("name", ["remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"])
def test_there_is_no_tiered_storage(name: str) -> None:
    assert isinstance(LogConfig.of(BrokerConfig({}, {}, {}), {name: "true"}), ConfigRefusal)
    assert isinstance(LogConfig.of(BrokerConfig({}, {}, {}), {name: "false"}), LogConfig)


def test_a_throttled_replica_of_very_many_digits_is_refused() -> None:
    """Python does not read it; a broker that finds it in the metadata goes on without it."""
    name = "leader.replication.throttled.replicas"
    config, problems = LogConfig.in_force(BrokerConfig({}, {}, {}), {name: f"0:{'9' * 5_000}"})
    assert config.leader_throttled is False
    assert len(problems) == 1
    assert LogConfig.in_force(BrokerConfig({}, {}, {}), {name: "0:1,2147483647:2"})[0].leader_throttled == {
        (0, 1),
        (2**31 - 1, 2),
    }
