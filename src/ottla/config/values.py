"""Parsing and checking of a setting's value, with Apache Kafka's own words for what is wrong."""

from __future__ import annotations

import re
from typing import TypeAlias

from ottla.config.settings import Setting

Value: TypeAlias = bool | int | float | str | list[str] | None
"""A parsed value: lists for type list, text for string, class and password."""

#: The characters of Java's `\s`, and those that its `trim` removes.
_SPACE = " \t\n\v\f\r"
_TRIMMED = "".join(map(chr, range(33)))
_BITS = {"short": 16, "int": 32, "long": 64}
_INTEGER = re.compile(r"[+-]?[0-9]{1,32}\Z")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?\Z")
_RANGE = re.compile(r"\[(-?[0-9.]+)?,?\.\.\.,?(-?[0-9.]+)?\]\Z")
#: Partitions and brokers have no numbers of more digits; Python does not read thousands of digits.
_THROTTLED = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?\Z")

_FIRST_RELEASES = frozenset(("0.8.0", "0.8.1", "0.8.2", "0.9.0"))
_LAST_LEVEL_OF_RELEASE = {
    "0.10.0": 1, "0.10.1": 2, "0.10.2": 0, "0.11.0": 2, "1.0": 0, "1.1": 0, "2.0": 1, "2.1": 2, "2.2": 1, "2.3": 1,
    "2.4": 1, "2.5": 0, "2.6": 0, "2.7": 2, "2.8": 1, "3.0": 1, "3.1": 0, "3.2": 0, "3.3": 3, "3.4": 0, "3.5": 2,
    "3.6": 2, "3.7": 4, "3.8": 0, "3.9": 0, "4.0": 1,
}  # fmt: skip
"""Kafka's releases and the number of their last metadata version (`3.7-IV4`)."""


class ConfigError(ValueError):
    """A value that its setting cannot take; the message names the setting, the value and the reason."""


def invalid(setting: Setting, value: object, reason: str) -> ConfigError:
    """The error Kafka raises for a bad value."""
    shown = "[hidden]" if setting.is_sensitive else value
    return ConfigError(f"Invalid value {shown} for configuration {setting.name}: {reason}")


def parse_value(setting: Setting, text: str | None) -> Value:
    """The value that `text` stands for, checked against the setting's valid values.

    Raises `ConfigError` in Kafka's words. None (only as a default) stays None.
    """
    if text is None:
        return None
    value = _parse_type(setting, text)
    _check_valid(setting, value)
    return value


def _parse_type(setting: Setting, original: str) -> Value:
    """Space around a value means nothing, but errors show it as it was `given`."""
    kind, text = setting.type, original.strip(_TRIMMED)
    if kind in _BITS:
        limit = 1 << (_BITS[kind] - 1)
        if _INTEGER.match(text) is None or not -limit <= int(text) < limit:
            raise invalid(setting, original, f"Not a number of type {kind.upper()}")
        return int(text)
    if kind == "double":
        if text in ("NaN", "Infinity", "+Infinity", "-Infinity"):
            return float(text)
        if _DOUBLE.match(text) is None:
            raise invalid(setting, original, "Not a number of type DOUBLE")
        return float(text.rstrip("fFdD"))
    if kind == "boolean":
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise invalid(setting, original, "Expected value to be either true or false")
        return lowered == "true"
    if kind == "list":
        return [word.strip(_SPACE) for word in text.split(",")] if text else []
    return text


def _check_valid(setting: Setting, value: Value) -> None:
    valid = setting.valid
    if not valid:
        return
    bounds = _RANGE.match(valid)
    if bounds is not None:
        _check_range(setting, value, bounds.group(1), bounds.group(2))
    elif valid.startswith("["):
        _check_choice(setting, value, valid[1:-1])
    elif valid == "version":
        if not is_kafka_version(str(value)):
            raise invalid(setting, value, f"Version {value} is not a valid version")
    elif valid == "1 to 9 or -1":
        if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
            raise invalid(setting, value, "Value must be between 1 and 9 or equal to -1")
    elif valid == "1 or more, or -1":
        if not isinstance(value, int) or (value < 1 and value != -1):
            raise invalid(setting, value, "Value can be -1 or greater than 0.")
    elif valid == "non-empty string":
        if value == "":
            raise invalid(setting, value, "String must be non-empty")
    elif valid == "throttled replicas":
        _check_throttled_replicas(setting, value)


def _check_range(setting: Setting, value: Value, lowest: str | None, highest: str | None) -> None:
    assert isinstance(value, int | float)
    if lowest is not None and value < float(lowest):
        raise invalid(setting, format_value(value), f"Value must be at least {lowest}")
    if highest is not None and value > float(highest):
        raise invalid(setting, format_value(value), f"Value must be no more than {highest}")


def _check_choice(setting: Setting, value: Value, choices: str) -> None:
    allowed = choices.split(", ")
    for element in value if isinstance(value, list) else [value]:
        word = str(element)
        if word not in allowed and not (setting.name == "group.consumer.migration.policy" and word.lower() in allowed):
            raise invalid(setting, element, f"String must be one of: {choices}")


def _check_throttled_replicas(setting: Setting, value: Value) -> None:
    assert isinstance(value, list)
    if "".join(value) != "*" and not all(_THROTTLED.match(replica) for replica in value):
        raise invalid(
            setting,
            f"[{', '.join(value)}]",
            f"{setting.name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def is_kafka_version(text: str) -> bool:
    """Whether `text` names a release or metadata version of Kafka: `2.8`, `3.9.1`, `3.7-IV4`."""
    segments = text.split(".")
    wanted = 3 if text.startswith("0.") else 2
    key = ".".join(segments[:wanted]) if len(segments) > wanted else text
    release, dash, level = key.partition("-IV")
    if release in _FIRST_RELEASES:
        return not dash
    last = _LAST_LEVEL_OF_RELEASE.get(release)
    if last is None:
        return False
    return not dash or (level.isascii() and level.isdigit() and str(int(level)) == level and int(level) <= last)


def format_value(value: Value) -> str | None:
    """The text of a parsed value as DescribeConfigs shows it: lists joined by commas, booleans in lower case."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, float):
        return java_double(value)
    return str(value)


def java_double(value: float) -> str:
    """A double as Java writes it: `0.5`, `1.7976931348623157E308`, `1.0E-5`."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, places = mantissa.lstrip("-").partition(".")
        shift = len(digits) - 1
        if digits == "0":  # below 1
            shift = len(places.lstrip("0")) - len(places) - 1
            digits, places = places.lstrip("0"), ""
        mantissa = ("-" if value < 0 else "") + digits[0] + "." + ((digits[1:] + places).rstrip("0") or "0")
        return f"{mantissa}E{shift}"
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
