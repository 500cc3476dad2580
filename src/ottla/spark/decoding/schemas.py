"""Schemas of typed columns: Spark's DDL or JSON text to a `pyarrow.Schema`, without a JVM.

`id BIGINT, device STRUCT<os: STRING>, tags ARRAY<STRING>` is what `StructType.toDDL` writes, and
`{"type":"struct","fields":[…]}` what `StructType.json` gives. All columns are nullable, as in `from_json`.
Source: Spark's SQL reference, "Data types".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pyarrow

from ottla.spark.decoding.column_limits import MAX_COLUMN_LEVELS
from ottla.spark.errors import OptionError

MAX_DECIMAL_PRECISION = 38
DEFAULT_DECIMAL = (10, 0)

_SIMPLE: dict[str, pyarrow.DataType] = {
    "boolean": pyarrow.bool_(),
    "byte": pyarrow.int8(),
    "tinyint": pyarrow.int8(),
    "short": pyarrow.int16(),
    "smallint": pyarrow.int16(),
    "int": pyarrow.int32(),
    "integer": pyarrow.int32(),
    "long": pyarrow.int64(),
    "bigint": pyarrow.int64(),
    "float": pyarrow.float32(),
    "real": pyarrow.float32(),
    "double": pyarrow.float64(),
    "string": pyarrow.string(),
    "binary": pyarrow.binary(),
    "date": pyarrow.date32(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "timestamp_ltz": pyarrow.timestamp("us", "UTC"),
    "timestamp_ntz": pyarrow.timestamp("us"),
}
_TOO_DEEP = f"types are nested more than {MAX_COLUMN_LEVELS} deep"
_KNOWN = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp, "
    "timestamp_ntz, array<…>, map<string,…>, struct<…>"
)
_DDL_TOKEN = re.compile(
    r"\s*(?:(?P<word>\w+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<mark>[<>(),:])|"
    r"(?P<text>(?:'(?:[^'\\]|\\.)*')+|(?:\"(?:[^\"\\]|\\.)*\")+))"
)


def parse_schema(text: str, *, option: str = "valueSchema") -> pyarrow.Schema:
    """The columns that Spark's DDL or JSON names. Raises OptionError."""
    text = text.strip()
    try:
        fields = _from_json(text) if text.startswith("{") else _Ddl(text).columns()
    except _SchemaError as problem:
        raise OptionError(f"option {option}: {problem}") from None
    if not fields:
        raise OptionError(f"option {option} names no column; give columns such as id BIGINT, name STRING")
    for name, count in Counter(field.name for field in fields).items():
        if count > 1:
            raise OptionError(f"option {option} names the column {name!r} twice")
    return pyarrow.schema(fields)


class _SchemaError(ValueError):
    """A fault in the text of a schema."""


def _decimal(precision: int, scale: int) -> pyarrow.DataType:
    if not 1 <= precision <= MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
        raise _SchemaError(f"decimal({precision},{scale}): precision is 1 to {MAX_DECIMAL_PRECISION}, scale 0 to it")
    return pyarrow.decimal128(precision, scale)


def _simple(name: str) -> pyarrow.DataType:
    if name in ("decimal", "dec", "numeric"):
        return _decimal(*DEFAULT_DECIMAL)
    if name not in _SIMPLE:
        raise _SchemaError(f"type {name!r} is not served; known are {_KNOWN}")
    return _SIMPLE[name]


def _map(key: pyarrow.DataType, value: pyarrow.DataType) -> pyarrow.DataType:
    if key != pyarrow.string():
        raise _SchemaError("keys of a map are strings; write map<string,…>")
    return pyarrow.map_(key, value)


class _Ddl:
    """Reader of a list of columns in Spark's DDL."""

    def __init__(self, text: str) -> None:
        self._tokens = _ddl_tokens(text)
        self._at = 0

    def columns(self) -> list[pyarrow.Field]:
        fields = self._fields(end="", depth=0)
        if self._peek():
            raise _SchemaError(f"unexpected {self._peek()!r} after the last column")
        return fields

    def _fields(self, *, end: str, depth: int) -> list[pyarrow.Field]:
        fields: list[pyarrow.Field] = []
        while self._peek() != end:
            name = self._name()
            if self._peek() == ":":
                self._at += 1
            fields.append(pyarrow.field(name, self._type(depth)))
            self._constraints()
            if self._peek() != ",":
                break
            self._at += 1
        return fields

    def _constraints(self) -> None:
        while self._peek().lower() in ("not", "comment"):
            word = self._take().lower()
            following = self._take()
            if (word == "not" and following.lower() != "null") or (word == "comment" and following[:1] not in "'\""):
                raise _SchemaError(f"expected {'NULL' if word == 'not' else 'a text'} after {word.upper()}")

    def _type(self, depth: int) -> pyarrow.DataType:
        if depth > MAX_COLUMN_LEVELS:
            raise _SchemaError(_TOO_DEEP)
        name = self._take().lower()
        if name == "array":
            self._expect("<")
            element = self._type(depth + 1)
            self._expect(">")
            return pyarrow.list_(pyarrow.field("element", element))
        if name == "map":
            self._expect("<")
            key = self._type(depth + 2)
            self._expect(",")
            value = self._type(depth + 2)
            self._expect(">")
            return _map(key, value)
        if name == "struct":
            self._expect("<")
            fields = self._fields(end=">", depth=depth + 1)
            self._expect(">")
            return pyarrow.struct(fields)
        if name in ("decimal", "dec", "numeric") and self._peek() == "(":
            return self._decimal()
        return _simple(name)

    def _decimal(self) -> pyarrow.DataType:
        self._expect("(")
        precision, scale = self._number(), 0
        if self._peek() == ",":
            self._at += 1
            scale = self._number()
        self._expect(")")
        return _decimal(precision, scale)

    def _number(self) -> int:
        word = self._take()
        if not word.isdigit():
            raise _SchemaError(f"expected a number, got {word!r}")
        return int(word)

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:]
        if not token.isidentifier() and not token.replace("_", "a").isalnum():
            raise _SchemaError(f"expected the name of a column, got {token!r}; quote unusual names with backticks")
        return token

    def _expect(self, mark: str) -> None:
        token = self._take()
        if token != mark:
            raise _SchemaError(f"expected {mark!r}, got {token or 'the end'!r}")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        if not token:
            raise _SchemaError("it ends in the middle of a column; write columns as name TYPE, name TYPE")
        self._at += 1
        return token


def _ddl_tokens(text: str) -> list[str]:
    """Words and marks; a name in backticks keeps the first one, so that it is not taken for a keyword."""
    tokens: list[str] = []
    at = 0
    while at < len(text):
        found = _DDL_TOKEN.match(text, at)
        if found is None:
            raise _SchemaError(f"cannot be read at {text[at:].strip()[:20]!r}; write columns as name TYPE, name TYPE")
        quoted = found["quoted"]
        tokens.append("`" + quoted.replace("``", "`") if quoted else found[0].strip())
        at = found.end()
    return tokens


def _from_json(text: str) -> list[pyarrow.Field]:
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise _SchemaError(f"not JSON ({problem})") from None
    except RecursionError:
        raise _SchemaError(_TOO_DEEP) from None
    if not isinstance(document, dict) or document.get("type") != "struct":
        raise _SchemaError('expected {"type": "struct", "fields": […]}, as StructType.json() writes it')
    return _json_fields(document, 0)


def _json_fields(document: dict[str, Any], depth: int) -> list[pyarrow.Field]:
    fields = document.get("fields")
    if not isinstance(fields, list):
        raise _SchemaError("a struct without fields")
    made: list[pyarrow.Field] = []
    for each in fields:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
            raise _SchemaError('a field needs {"name": …, "type": …}')
        made.append(pyarrow.field(each["name"], _json_type(each["type"], depth)))
    return made


def _json_type(kind: object, depth: int) -> pyarrow.DataType:
    if depth > MAX_COLUMN_LEVELS:
        raise _SchemaError(_TOO_DEEP)
    if isinstance(kind, str):
        number = re.fullmatch(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", kind)
        return _decimal(int(number[1]), int(number[2])) if number else _simple(kind)
    if isinstance(kind, dict) and kind.get("type") == "struct":
        return pyarrow.struct(_json_fields(kind, depth + 1))
    if isinstance(kind, dict) and kind.get("type") == "array":
        return pyarrow.list_(pyarrow.field("element", _json_type(kind.get("elementType"), depth + 1)))
    if isinstance(kind, dict) and kind.get("type") == "map":
        return _map(_json_type(kind.get("keyType"), depth + 2), _json_type(kind.get("valueType"), depth + 2))
    raise _SchemaError(f"type {json.dumps(kind)[:60]} is not served; known are {_KNOWN}")
