"""Names of principals from certificates: pure, as the JDK and Kafka's SslPrincipalMapper make them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.security.der import DerError, certificate, elements, object_id, sequence
from ottla.security.errors import SecurityError

SETTING = "ssl.principal.mapping.rules"
KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 has words for; of others the JDK shows number and bytes."""
TEXT_TAGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_NEXT_RULE = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_WHOLE_RULE = re.compile(_RULE)
_REPLACED = re.compile(r"\\(.)|\$([0-9]+)|([$\\])", re.DOTALL)


def principal_name(der: bytes) -> str:
    """The subject of a certificate as Java's `X500Principal.getName()` prints it. Raises SecurityError."""
    try:
        sets = sequence(certificate(der).subject)
        return ",".join("+".join(_attribute(each.whole) for each in elements(part.content)) for part in reversed(sets))
    except (DerError, ValueError) as error:
        raise SecurityError(f"the subject of the certificate cannot be read ({error}); make it again") from None


def _attribute(data: bytes) -> str:
    kind, value = sequence(data)
    number = object_id(kind.content)
    word = KEYWORDS.get(number)
    if word is None or value.tag not in TEXT_TAGS:
        return f"{word or number}=#{value.whole.hex()}"
    text = value.content.decode("utf-8", "replace")
    lead, trail = len(text) - len(text.lstrip(_BLANKS)), len(text.rstrip(_BLANKS))
    shown = [_escaped(char, not lead <= at < trail) for at, char in enumerate(text)]
    return f"{word}={''.join(shown)}"


def _escaped(char: str, is_at_end: bool) -> str:
    if char == "\0":
        return "\\00"
    return f"\\{char}" if is_at_end or char in _ESCAPED else char


class Rule(NamedTuple):
    """A rule: names that the pattern matches get the replacement, in which numbers are groups."""

    pattern: re.Pattern[str]
    replacement: Sequence[str | int]
    case: str

    def name(self, distinguished_name: str) -> str | None:
        """The name by this rule, None where it does not match."""
        if self.pattern.fullmatch(distinguished_name) is None:
            return None
        name = self.pattern.sub(lambda match: replaced(self.replacement, match), distinguished_name)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class PrincipalMapper:
    """`ssl.principal.mapping.rules`: the first rule that matches gives the name. Raises SecurityError."""

    def __init__(self, rules: str | None = None) -> None:
        #: None is DEFAULT.
        self._rules: list[Rule | None] = []
        for found in _NEXT_RULE.finditer((rules or "DEFAULT").strip()):
            match = _WHOLE_RULE.match(found[1])
            if match is None or match.end() != len(found[1]):
                raise SecurityError(
                    f"{SETTING}: {found[1]!r} is not a rule; write DEFAULT or RULE:pattern/replacement/[LU]"
                )
            if match[1] is not None:
                self._rules.append(None)
            elif match[2] is not None:
                self._rules.append(Rule(*substitution(SETTING, match[2], match[3]), match[4]))

    def name(self, distinguished_name: str) -> str:
        """The name of the principal. Raises SecurityError where no rule matches."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.name(distinguished_name)
            if name is not None:
                return name
        raise SecurityError(f"no rule of {SETTING} matches {distinguished_name}; add one, or DEFAULT at the end")


def substitution(setting: str, pattern: str, replacement: str) -> tuple[re.Pattern[str], tuple[str | int, ...]]:
    """A pattern, and its replacement in Java's format: texts, and numbers of groups. Raises SecurityError."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SecurityError(f"{setting}: the pattern {pattern!r} cannot be read ({error}); correct it") from None
    parts: list[str | int] = []
    at = 0
    for found in _REPLACED.finditer(replacement):
        parts.append(replacement[at : found.start()])
        if found[3] is not None:
            raise SecurityError(f"{setting}: {found[3]} in {replacement!r} means nothing; write \\{found[3]}")
        parts += [found[1]] if found[2] is None else _group(setting, compiled, replacement, found[2])
        at = found.end()
    return compiled, (*parts, replacement[at:])


def replaced(replacement: Sequence[str | int], match: re.Match[str]) -> str:
    """The text for a match."""
    return "".join(part if isinstance(part, str) else match[part] or "" for part in replacement)


def _group(setting: str, pattern: re.Pattern[str], replacement: str, digits: str) -> list[str | int]:
    """A group and the digits after it: as in Java, the number is as long as there is such a group."""
    length = next((n for n in range(len(digits), 1, -1) if int(digits[:n]) <= pattern.groups), 1)
    if int(digits[:length]) > pattern.groups:
        raise SecurityError(f"{setting}: ${digits} in {replacement!r} is not a group of {pattern.pattern!r}")
    return [int(digits[:length]), digits[length:]]
