"""Filters of records: JMESPath expressions over a record's fields. jmespath is an extra, imported at first use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from ottla.client.errors import InvalidArgumentError
from ottla.records.consumed import ConsumerRecord
from ottla.records.extras import require_extra

Bytes = bytes | None

#: In JMESPath's sense; the number 0 is true.
_FALSE: Final[tuple[Any, ...]] = ("", [], {})
_BEGINS_JSON: Final = (b"{", b"[")
FIELDS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
#: Types of nodes whose other children look into what the first one finds.
_ONLY_FIRST: Final = frozenset(
    {"filter_projection", "flatten", "index_expression", "pipe", "projection", "subexpression", "value_projection"}
)


class RecordFilter:
    """A JMESPath expression that is true or false of a record.

    Its fields are `key`, `value`, `headers` (an object; of headers with one name the last counts), `topic`,
    `partition`, `offset` and `timestamp` (ms). A value that is JSON is such, and so is a key that is an object or a
    list; else they are text. A record of which the expression cannot be computed does not match: `on_failure` gets the
    first such record and the cause. Raises InvalidArgumentError that says where the expression is wrong, and
    MissingExtraError.
    """

    def __init__(self, expression: str, on_failure: Callable[[ConsumerRecord[Bytes, Bytes], str], None]) -> None:
        require_extra("--filter", "filter", "jmespath")
        self._parsed = _parsed(expression)
        self._on_failure: Callable[[ConsumerRecord[Bytes, Bytes], str], None] | None = on_failure

    def matches(self, record: ConsumerRecord[Bytes, Bytes]) -> bool:
        """Whether the expression is true of a record."""
        from jmespath.exceptions import JMESPathError

        try:
            result = self._parsed.search(_fields(record))
        except (JMESPathError, TypeError, ValueError, ArithmeticError) as problem:
            if self._on_failure is not None:
                self._on_failure(record, str(problem))
                self._on_failure = None
            return False
        return not (result is None or result is False or result in _FALSE)


def _parsed(expression: str) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError, ParseError

    try:
        parsed = jmespath.compile(expression)
    except ParseError as problem:
        at = problem.lex_position or 0
        raise InvalidArgumentError(
            f"{_marked(expression, at)}: from there it is not JMESPath; numbers stand in backticks and texts in single "
            "quotes: value.count > `3` && key == 'a'"
        ) from None
    except JMESPathError as problem:
        raise InvalidArgumentError(f"{expression or 'an empty text'!r}: {problem}") from None
    except RecursionError:
        raise InvalidArgumentError("the expression is nested too deeply") from None
    for name in _names(parsed.parsed):
        if name not in FIELDS:
            where = _marked(expression, expression.find(name))
            raise InvalidArgumentError(f"{where}: {name} is not a field of a record, which has {', '.join(FIELDS)}")
    for name, count in _calls(parsed.parsed):
        _check_call(expression, name, count)
    return parsed


def _marked(expression: str, at: int) -> str:
    return f"{expression}: character {at + 1}, {expression[at : at + 20] or 'its end'!r}"


def _names(node: dict[str, Any]) -> Iterator[str]:
    """Names in a parsed expression that are looked up in the record itself."""
    if node["type"] == "expref":  # &field, of what a function makes of the record
        return
    if node["type"] == "field":
        yield node["value"]
    children = node["children"][:1] if node["type"] in _ONLY_FIRST else node["children"]
    for child in children:
        if isinstance(child, dict):
            yield from _names(child)


def _calls(node: Any) -> Iterator[tuple[str, int]]:
    """Functions that a parsed expression calls, with the numbers of their arguments."""
    if isinstance(node, dict):
        if node.get("type") == "function_expression":
            yield node["value"], len(node["children"])
        for child in node.get("children", ()):
            yield from _calls(child)


def _check_call(expression: str, name: str, count: int) -> None:
    from jmespath.functions import Functions

    known = Functions.FUNCTION_TABLE
    where = _marked(expression, expression.find(name))
    if name not in known:
        raise InvalidArgumentError(f"{where}: JMESPath has no function {name}; it has {', '.join(sorted(known))}")
    signature = known[name]["signature"]
    is_open = bool(signature) and bool(signature[-1].get("variadic"))
    if count < len(signature) or (count > len(signature) and not is_open):
        least = " or more" if is_open else ""
        raise InvalidArgumentError(f"{where}: {name} takes {len(signature)}{least} arguments, not {count}")


def _fields(record: ConsumerRecord[Bytes, Bytes]) -> dict[str, Any]:
    key = record.key
    return {
        "key": _json_or_text(key) if key is not None and key.lstrip().startswith(_BEGINS_JSON) else _text(key),
        "value": _json_or_text(record.value),
        "headers": {name: _text(value) for name, value in record.headers},
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }


def _json_or_text(data: Bytes) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _text(data)


def _text(data: Bytes) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
