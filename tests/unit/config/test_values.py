from __future__ import annotations

import pytest

from ottla.config.settings import BROKER_SETTINGS
from ottla.config.values import ConfigError, format_value, is_kafka_version, java_double, parse_value


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), (True, "true"), (False, "false"), (["a", "b"], "a,b"), ([], ""), (5, "5"), ("x", "x"), (0.5, "0.5")],
)
def test_values_are_written_as_kafka_writes_them(value: object, text: str | None) -> None:
    assert format_value(value) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.7976931348623157e308, "1.7976931348623157E308"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"), (0.0, "0.0"),
     (1e-5, "1.0E-5"), (0.001, "0.001"), (9999999.0, "9999999.0"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
     (1e15, "1.0E15"), (-2.5e20, "-2.5E20")],
)  # fmt: skip
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize("text", ["0.8.0", "0.10.2-IV0", "0.11.0.1", "1.0", "2.8", "2.8.1", "3.9-IV0", "3.9.1"])
def test_versions_of_kafka(text: str) -> None:
    assert is_kafka_version(text)


@pytest.mark.parametrize("text", ["", "3", "3.10", "0.8.0-IV0", "3.9-IV1", "3.9-IV", "3.9-IV00", "x", "0.11"])
def test_other_versions(text: str) -> None:
    assert not is_kafka_version(text)


@pytest.mark.parametrize("text", ["1_000", "٣", "0x10", "1e3", "9" * 40, "--1", "1 2"])
def test_numbers_are_plain_decimal(text: str) -> None:
    with pytest.raises(ConfigError, match=r"Not a number of type INT$"):
        parse_value(BROKER_SETTINGS["num.partitions"], text)


@pytest.mark.spec("S6")
def test_a_bad_secret_is_not_shown() -> None:
    setting = BROKER_SETTINGS["ssl.key.password"]._replace(valid="[a]")
    with pytest.raises(ConfigError, match=r"Invalid value \[hidden\] for configuration ssl.key.password"):
        parse_value(setting, "hunter2")
