"""Kinds of columns that JSON objects are read into (`ottla.records._json`)."""

from __future__ import annotations

from typing import Final

TEXT: Final = 0
LONG: Final = 1
DOUBLE: Final = 2
BOOLEAN: Final = 3
NUMBER: Final = 4
"""Keeps the characters of numbers, as TEXT does those of strings."""
OBJECT: Final = 5
LIST: Final = 6
DECIMAL: Final = 7
"""As NUMBER, of numbers with at most 38 digits before the point and 38 behind it."""
