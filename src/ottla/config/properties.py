"""Java's properties format, in which Kafka's configuration files are written.

Source: the documentation of `java.util.Properties.load`.
"""

from __future__ import annotations

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """The text is not a properties file; the message names the line."""


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties file, the last value of a repeated key winning.

    Comments start with # or !, a backslash at the end continues a line, `=`, `:` or blanks end a key, and a
    backslash before t, n, r, f or uXXXX stands for that character. Raises `PropertiesError` for a malformed escape
    of the last kind.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _split_positions(line)
        found[_unescape(line[:key_end], number)] = _unescape(line[value_start:], number)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending: str | None = None
    start = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANK)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            start = number
        else:
            line = pending + line
        pending = None
        if (len(line) - len(line.rstrip("\\"))) % 2 == 1:
            pending = line[:-1]
        else:
            lines.append((start, line))
    if pending is not None:
        lines.append((start, pending))
    return lines


def _split_positions(line: str) -> tuple[int, int]:
    """The end of the key and the start of the value."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANK:
        position += 2 if line[position] == "\\" else 1
    key_end = min(position, len(line))
    value_start = key_end
    while value_start < len(line) and line[value_start] in _BLANK:
        value_start += 1
    if value_start < len(line) and line[value_start] in "=:":
        value_start += 1
        while value_start < len(line) and line[value_start] in _BLANK:
            value_start += 1
    return key_end, value_start


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(f"line {line_number}: malformed \\u escape: four hexadecimal digits must follow")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(character, character))
    # A pair of \u escapes may stand for one character beyond the first 65,536.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
