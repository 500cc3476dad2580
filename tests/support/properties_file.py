"""Properties files as Java writes them."""

from __future__ import annotations


def format_properties(properties: dict[str, str]) -> str:
    """A properties file with these keys and values, in their order."""
    return "".join(f"{_escape(key, True)}={_escape(value, False)}\n" for key, value in properties.items())


def _escape(text: str, is_key: bool) -> str:
    out = []
    for index, character in enumerate(text):
        if character in "\\#!=:" or (character == " " and (is_key or index == 0)):
            out.append("\\" + character)
        elif character in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character])
        else:
            out.append(character)
    return "".join(out)
