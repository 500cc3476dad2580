"""Options as Spark hands them over: looked up without regard to case, unknown ones refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from ottla.spark.errors import OptionError

KAFKA_PREFIX = "kafka."
"""Before the names of Kafka's client settings."""

_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class SparkOptions:
    """The options of one read or write. `refused` names options that cannot be had, with what to do instead."""

    def __init__(
        self,
        options: Mapping[str, str],
        known: Iterable[str],
        purpose: str,
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Raises OptionError for an option that is not `known`; `kafka.*` among those stands for all that begin so."""
        self._values = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        any_setting = names.pop(f"{KAFKA_PREFIX}*", None) is not None
        for cannot, cure in (refused or {}).items():
            if cannot.lower() in self._values:
                raise OptionError(f"option {cannot} is not served when {purpose}: {cure}")
        for name in self._values:
            if name not in names and not (any_setting and name.startswith(KAFKA_PREFIX)):
                raise OptionError(_unknown_option(name, names, purpose))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str) -> str | None:
        """The value, None where the option is missing."""
        return self._values.get(name.lower())

    def kafka_settings(self) -> dict[str, str]:
        """Kafka's settings by their own names."""
        size = len(KAFKA_PREFIX)
        return {name[size:]: value for name, value in self._values.items() if name.startswith(KAFKA_PREFIX)}

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of the lower-case `choices`. Raises OptionError."""
        value = (self.get(name) or default).strip().lower()
        if value not in choices:
            raise OptionError(f"option {name}: {value!r} is not one of {', '.join(choices)}")
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        """`true` or `false`. Raises OptionError."""
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def positive(self, name: str) -> int | None:
        """A whole number of 1 or more. Raises OptionError."""
        return self.number(name, least=1)

    def number(self, name: str, *, least: int) -> int | None:
        """A whole number of `least` or more. Raises OptionError."""
        value = self.get(name)
        if value is None:
            return None
        text = value.strip()
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise OptionError(f"option {name}: {value!r} is not a whole number of {least} or more")
        return int(text)

    def milliseconds(self, name: str) -> int | None:
        """A time as Spark writes it, `90s`, `15m`, `500ms`; a number alone is milliseconds. Raises OptionError."""
        value = self.get(name)
        if value is None:
            return None
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower(), re.ASCII)
        if found is None or found[2] not in {"", *_UNITS_MS}:
            raise OptionError(f"option {name}: {value!r} is not a time; give it as 90s, 15m, 1h or in milliseconds")
        return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])


def _unknown_option(name: str, names: Mapping[str, str], purpose: str) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(sorted(names.values()))}"
    return f"unknown option {name!r} when {purpose}; {advice}"
