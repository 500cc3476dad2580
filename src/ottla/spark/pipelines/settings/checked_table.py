"""One table of a pipeline's file, its keys checked by name and type; each problem is a sentence that names the key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.settings.keys import Key, KeyType
from ottla.spark.pipelines.settings.references import References

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_DURATION: Final = re.compile(rf"(\d+)\s+({'|'.join(_UNITS_MS)})s?")
_SIZE: Final = re.compile(r"(\d+)\s*(B|kB|MB|GB|KiB|MiB|GiB)")
_SIZES: Final = {
    "B": 1,
    "kB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
NEVER: Final = "never"


class CheckedTable:
    """A table under its `title` (`[source]`). Making one raises PipelineSettingsError for unknown keys, wrong types and
    what is missing.
    """

    def __init__(
        self,
        title: str,
        content: object,
        keys: Sequence[Key],
        references: References,
        *,
        sections: Sequence[str] = (),
    ) -> None:
        self.title = title
        self._keys = {key.name: key for key in keys}
        self._references = references
        if not isinstance(content, Mapping):
            raise PipelineSettingsError(f"{title} is not a table")
        self._content: Mapping[str, Any] = content
        for name, value in content.items():
            if name in self._keys:
                self._check(self._keys[name], value)
            elif name not in sections:
                raise PipelineSettingsError(self._unknown(name, [*self._keys, *sections]))
        for key in keys:
            if key.required and key.name not in content:
                raise PipelineSettingsError(f"{self.where(key.name)} is missing; it is {key.type}")

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def where(self, name: str) -> str:
        """A key as errors name it."""
        return f"{self.title} {name}".strip()

    def refusal(self, name: str, problem: str) -> PipelineSettingsError:
        """An error about a key."""
        return PipelineSettingsError(f"{self.where(name)}: {problem}")

    def text(self, name: str) -> str | None:
        """A string with its references replaced; None where it is not there. Raises PipelineSettingsError."""
        value = self._content.get(name)
        return None if value is None else self._references.resolve(value, self.where(name))

    def needed(self, name: str) -> str:
        """A string that is there and not empty. Raises PipelineSettingsError."""
        value = self.text(name)
        if value is None or not value.strip():
            raise PipelineSettingsError(f"{self.where(name)} is {'missing' if value is None else 'empty'}")
        return value

    def plain(self, name: str) -> str | None:
        """A string that is shown everywhere, so that it must not come from `${…}`. Raises PipelineSettingsError."""
        value = self._content.get(name)
        if value is not None and self._references.is_secret(value):
            raise self.refusal(name, "must stand in the file itself, without ${…}")
        return None if value is None else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty where it is not there. Raises PipelineSettingsError."""
        values = self._content.get(name, ())
        found = tuple(self._references.resolve(each, self.where(name)) for each in values)
        if not all(each.strip() for each in found):
            raise self.refusal(name, "a string in it is empty")
        twice = [each for at, each in enumerate(values) if each in values[:at]]
        if twice:
            raise self.refusal(name, f"{twice[0]!r} is there twice")
        return found

    def number(self, name: str) -> int | None:
        """A whole number; None where it is not there."""
        return self._content.get(name)

    def flag(self, name: str) -> bool:
        """True or false; false where it is not there."""
        return bool(self._content.get(name, False))

    def mapping(self, name: str) -> dict[str, str]:
        """A table of strings; numbers and booleans as Spark writes them, tables in it by names with dots."""
        return dict(self._flat(self._content.get(name, {}), name))

    def duration_ms(self, name: str) -> int | None:
        """A duration in ms; None where it is not there."""
        text = self.text(name)
        return None if text is None else _milliseconds(text)

    def size_bytes(self, name: str, default: int) -> int | None:
        """A size; None for "never"."""
        text = self.text(name)
        if text is None:
            return default
        found = _SIZE.fullmatch(text.strip())
        return None if found is None else int(found[1]) * _SIZES[found[2]]

    def _flat(self, content: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for name, value in content.items():
            if isinstance(value, Mapping):
                found.extend((f"{name}.{inner}", text) for inner, text in self._flat(value, f"{prefix}.{name}"))
            elif isinstance(value, bool):
                found.append((name, str(value).lower()))
            elif isinstance(value, str):
                found.append((name, self._references.resolve(value, self.where(f"{prefix}.{name}"))))
            else:
                found.append((name, str(value)))
        return found

    def _check(self, key: Key, value: object) -> None:
        # Values of other types are shown; those of tables and strings may be secrets.
        if not _fits(value, key.type):
            shown = f"{value!r} is" if isinstance(value, int | float | bool) else "it is"
            raise self.refusal(key.name, f"{shown} not {key.type}")
        if isinstance(value, str) and key.choices:
            chosen = self._references.resolve(value, self.where(key.name))
            if chosen not in key.choices:
                near = difflib.get_close_matches(chosen, key.choices, n=1)
                cure = f"did you mean {near[0]!r}?" if near else f"give one of {', '.join(key.choices)}"
                raise self.refusal(key.name, f"{value!r} is not known; {cure}")
        if isinstance(value, str) and key.type in (KeyType.duration, KeyType.size):
            text = self._references.resolve(value, self.where(key.name))
            is_size = _SIZE.fullmatch(text.strip()) is not None or text == NEVER
            if not (is_size if key.type is KeyType.size else _milliseconds(text)):
                raise self.refusal(key.name, f"{value!r} is not {key.type}")

    def _unknown(self, name: str, known: Sequence[str]) -> str:
        near = difflib.get_close_matches(name, known, n=1)
        cure = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        place = f"in {self.title}" if self.title else "at the top of the file"
        return f"unknown key {name!r} {place}; {cure}"


def _fits(value: object, kind: KeyType) -> bool:
    if kind is KeyType.number:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    if kind is KeyType.flag:
        return isinstance(value, bool)
    if kind is KeyType.texts:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if kind is KeyType.mapping:
        return isinstance(value, Mapping) and _is_plain(value)
    return isinstance(value, str)


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(each) for each in value.values())
    return isinstance(value, str | int | float)


def _milliseconds(text: str) -> int | None:
    """A duration such as "1 hour 30 minutes" in ms; None where it is none, or nothing."""
    amounts = _DURATION.findall(text)
    if not amounts or _DURATION.sub("", text).strip():
        return None
    return sum(int(number) * _UNITS_MS[unit] for number, unit in amounts) or None
