"""Conversion and validation of one setting, given as text or as a Python object."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex

from ottla.client.configs.foreign import OTHER_WORDS
from ottla.client.configs.settings import CASE_INSENSITIVE, CLASS_LISTS, attribute_of, unit_of
from ottla.config.settings import Setting
from ottla.config.values import ConfigError, invalid, parse_value

_INTEGERS = frozenset(("short", "int", "long"))
_LIMITS = {"short": 2**15 - 1, "int": 2**31 - 1, "long": 2**63 - 1}
_UNITS = {"ms": "milliseconds", "s": "seconds", "bytes": "bytes"}


def parse_original(setting: Setting, original: object) -> Any:
    """Return the typed value: int, float, bool, str, a tuple for lists; for classes the given object.

    None means "not set", so it returns the default. Raises `ConfigError` whose message names the setting, the
    value, what is wrong with it and what is allowed.
    """
    if original is None:
        return default_of(setting)
    try:
        if setting.name in CLASS_LISTS:
            return _class_list(original)
        if setting.type == "class":
            return (original.strip() or None) if isinstance(original, str) else original
        return _plain(setting, original)
    except ConfigError as error:
        raise ConfigError(f"{error}. {allowed(setting, original)}") from None


def default_of(setting: Setting) -> Any:
    """The typed default."""
    if setting.default is None:
        return () if setting.type == "list" else None
    if setting.name in CLASS_LISTS:
        return _class_list(setting.default)
    return _settled(setting, parse_value(setting, setting.default))


def _class_list(original: object) -> tuple[Any, ...]:
    if isinstance(original, str):
        return tuple(part.strip() for part in original.split(",") if part.strip())
    return tuple(original) if isinstance(original, list | tuple) else (original,)


def _plain(setting: Setting, original: object) -> Any:
    text = _text(setting, original)
    if setting.name in CASE_INSENSITIVE:
        text = text.lower()
    return _settled(setting, parse_value(setting, text))


def _settled(setting: Setting, value: Any) -> Any:
    if setting.name == "acks":
        return -1 if value == "all" else int(value)
    return tuple(part for part in value if part) if isinstance(value, list) else value


def _text(setting: Setting, original: object) -> str:
    """Return the object as a properties file would have it; raises ConfigError for a wrong type."""
    kind = setting.type
    if isinstance(original, str):
        return original
    if kind == "boolean":
        if isinstance(original, bool):
            return str(original)
        raise invalid(setting, original, "Expected value to be either true or false")
    if kind in _INTEGERS or kind == "double" or setting.name == "acks":
        if isinstance(original, SupportsIndex) and not isinstance(original, bool):  # int, and numpy's integers
            return str(index(original))
        if kind == "double" and isinstance(original, float):
            return repr(original)
        raise invalid(setting, original, f"Not a number of type {'INT' if setting.name == 'acks' else kind.upper()}")
    if kind == "list" and isinstance(original, Sequence) and all(isinstance(part, str) for part in original):
        return ",".join(original)
    expected = "a list of texts" if kind == "list" else "text"
    raise invalid(setting, original, f"Expected {expected}, not {type(original).__name__}")


def allowed(setting: Setting, original: object = None) -> str:
    """Describe the allowed values of a setting, as a sentence."""
    word = OTHER_WORDS.get(setting.name, {}).get(str(original))
    if word is not None:
        return f"Kafka's word for it is {word!r}: set {setting.name} (or {attribute_of(setting.name)}) to that."
    default = "" if setting.default is None else f"; the default is {setting.default or 'empty'}"
    return f"Give {setting.name} {_what(setting)}{default}."


def _what(setting: Setting) -> str:
    valid = setting.valid
    if setting.type == "boolean":
        return "True or False"
    if setting.type in _INTEGERS or setting.type == "double":
        unit = _UNITS.get(unit_of(setting), "")
        return (
            f"a {'whole ' if setting.type in _INTEGERS else ''}number{f' of {unit}' if unit else ''}{_range(setting)}"
        )
    if valid.startswith("["):
        return f"one of {valid[1:-1]}"
    if setting.type == "list":
        return "a list, or text with commas"
    return "text that is not empty" if valid == "non-empty string" else "text"


def _range(setting: Setting) -> str:
    valid = setting.valid
    if not valid.startswith("["):
        return f", {valid}" if valid else f", {_LIMITS[setting.type]} at most" if setting.type in _LIMITS else ""
    lowest, _, highest = valid[1:-1].partition(",...")
    highest = highest.removeprefix(",")
    return f" from {lowest} to {highest or _LIMITS[setting.type]}"
