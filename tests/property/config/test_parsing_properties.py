"""Whatever a user writes, the answer is a configuration or a refusal, never another exception."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.config.broker import BrokerConfig, ConfigRefusal, parse_broker_config
from ottla.config.properties import PropertiesError, parse_properties
from ottla.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.config.topic import LogConfig
from support.properties_file import format_properties

NAMES = st.sampled_from(sorted(BROKER_SETTINGS))
VALUES = st.one_of(
    st.text(max_size=20),
    st.integers().map(str),
    st.sampled_from(
        ["", "true", "PLAINTEXT://h:1", "A://[::1]:0,B://:2", "a:PLAINTEXT", "-1", "NaN", "compact,delete"]
    ),
)


@given(st.dictionaries(st.one_of(NAMES, st.text(max_size=12)), VALUES, max_size=5))
def test_any_properties(properties: dict[str, str]) -> None:
    result = parse_broker_config(properties)
    if isinstance(result, ConfigRefusal):
        assert result.problems
        assert all(result.problems)
        return
    assert isinstance(result, BrokerConfig)
    assert isinstance(LogConfig.of(result, {}), LogConfig)
    for name in BROKER_SETTINGS:
        result.value(name)


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_SETTINGS)), VALUES, max_size=4))
def test_any_topic_settings(overrides: dict[str, str]) -> None:
    broker = parse_broker_config({})
    assert isinstance(broker, BrokerConfig)
    result = LogConfig.of(broker, overrides)
    assert isinstance(result, LogConfig) or result.problems


@given(st.text())
def test_any_text_as_a_properties_file(text: str) -> None:
    try:
        found = parse_properties(text)
    except PropertiesError:
        return
    assert parse_properties(format_properties(found)) == found


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_reads_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties
