"""Avro schemas as nodes: checked JSON with full names. They may hold types that cannot be columns, to be skipped.

Source: the Avro specification 1.12.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 100
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")


class AvroSchemaError(ValueError):
    """A schema that is not Avro, or has a type that cannot be a column; the message names the place."""


@dataclass(eq=False, slots=True)
class AvroNode:
    """A type of a schema. `type` is a primitive's name, record, enum, fixed, array, map or union.

    `name` and `aliases` are full names. `items` is the type of an array's items or a map's values. `logical` is the
    JSON that names a logical type. A record may contain itself: its fields are there once it was read.
    """

    type: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[NodeField, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    items: AvroNode | None = None
    branches: tuple[AvroNode, ...] = ()
    logical: dict[str, Any] | None = None

    @property
    def item(self) -> AvroNode:
        """The type of items or values, of an array or a map only."""
        assert self.items is not None
        return self.items


@dataclass(frozen=True, slots=True)
class NodeField:
    """A field of a record. `default` is JSON."""

    name: str
    node: AvroNode
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


def parse_node(text: str, references: Sequence[str] = ()) -> AvroNode:
    """Read the JSON of a record's schema, which may use the names that `references` define. Raises AvroSchemaError."""
    reader = _reader(references)
    document = _json_of(text)
    if not isinstance(document, dict) or document.get("type") != "record":
        raise AvroSchemaError('expected {"type": "record", …}: the columns are its fields')
    return reader.read(document, "", "", 0)


def parse_type(text: str, references: Sequence[str] = ()) -> AvroNode:
    """Read the JSON of a schema of any type, as `parse_node` does."""
    return _reader(references).read(_json_of(text), "", "", 0)


def _reader(references: Sequence[str]) -> _Reader:
    reader = _Reader()
    for each in references:
        reader.read(_json_of(each), "", "", 0)
    return reader


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise AvroSchemaError(f"not JSON ({problem})") from None
    except RecursionError:
        raise AvroSchemaError(f"types are nested more than {MAX_DEPTH} deep") from None


class _Reader:
    """Reads schemas, the later of which may use the names of the earlier ones."""

    def __init__(self) -> None:
        self._named: dict[str, AvroNode] = {}

    def read(self, document: Any, space: str, path: str, depth: int) -> AvroNode:
        if depth > MAX_DEPTH:
            raise AvroSchemaError(f"{path}: types are nested more than {MAX_DEPTH} deep")
        if isinstance(document, list):
            return self._union(document, space, path, depth)
        if isinstance(document, dict):
            return self._complex(document, space, path, depth)
        if not isinstance(document, str):
            raise AvroSchemaError(f"{path or 'the schema'}: {json.dumps(document)[:60]} is not a type")
        if document in PRIMITIVES:
            return AvroNode(document)
        names = [document] if "." in document or not space else [f"{space}.{document}", document]
        for name in names:
            if name in self._named:
                return self._named[name]
        raise AvroSchemaError(f"{path}: unknown type {document!r}")

    def _union(self, document: list[Any], space: str, path: str, depth: int) -> AvroNode:
        branches = tuple(self.read(each, space, path, depth + 1) for each in document)
        seen: set[str] = set()
        for each in branches:
            called = each.name or each.type
            if each.type == "union":
                raise AvroSchemaError(f"{path}: a union directly within a union")
            if called in seen:
                raise AvroSchemaError(f"{path}: {called!r} is in a union twice")
            seen.add(called)
        if not branches:
            raise AvroSchemaError(f"{path}: a union without types")
        return AvroNode("union", branches=branches)

    def _complex(self, document: dict[str, Any], space: str, path: str, depth: int) -> AvroNode:
        kind = document.get("type")
        if kind in _NAMED:
            return self._definition(document, str(kind), space, path, depth)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if inner not in document:
                raise AvroSchemaError(f"{path}: {kind} needs {inner!r}, the type of its {inner}")
            return AvroNode(str(kind), items=self.read(document[inner], space, path, depth + 1))
        if kind is None:
            raise AvroSchemaError(f"{path or 'the schema'}: a type needs {{'type': …}}")
        found = self.read(kind, space, path, depth + 1)
        return (
            AvroNode(found.type, logical=document) if found.type in PRIMITIVES and "logicalType" in document else found
        )

    def _definition(self, document: dict[str, Any], kind: str, space: str, path: str, depth: int) -> AvroNode:
        name, own = _full_name(document, space, path)
        if name in self._named:
            raise AvroSchemaError(f"{path or 'the schema'}: {name!r} is defined twice")
        aliases = tuple(
            each if "." in each or not own else f"{own}.{each}" for each in _texts(document, "aliases", path)
        )
        made = AvroNode("record" if kind == "error" else kind, name, aliases)
        self._named[name] = made
        if kind == "enum":
            _read_enum(made, document, path)
        elif kind == "fixed":
            size = document.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise AvroSchemaError(f"{path}: a fixed needs a size, a whole number of bytes")
            made.size, made.logical = size, document
        else:
            made.fields = self._fields(document, own, path, depth)
        return made

    def _fields(self, document: dict[str, Any], space: str, path: str, depth: int) -> tuple[NodeField, ...]:
        declared = document.get("fields")
        if not isinstance(declared, list):
            raise AvroSchemaError(f"{path or 'the record'} has no list of fields")
        fields: dict[str, NodeField] = {}
        for each in declared:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
                raise AvroSchemaError(f'a field of {path or "the record"} needs {{"name": …, "type": …}}')
            name = each["name"]
            place = f"{path}.{name}".lstrip(".")
            if not name.isidentifier():
                raise AvroSchemaError(f"{place}: {name!r} is not a name")
            if name in fields:
                raise AvroSchemaError(f"{place}: {path or 'the record'} has this field twice")
            node = self.read(each["type"], space, place, depth + 1)
            aliases = _texts(each, "aliases", place)
            fields[name] = NodeField(name, node, aliases, "default" in each, each.get("default"))
        return tuple(fields.values())


def _read_enum(made: AvroNode, document: dict[str, Any], path: str) -> None:
    symbols = _texts(document, "symbols", path)
    if not symbols or len(set(symbols)) < len(symbols):
        raise AvroSchemaError(f"{path}: an enum needs a list of symbols, each of them once")
    default = document.get("default")
    if default is not None and default not in symbols:
        raise AvroSchemaError(f"{path}: the enum's default {json.dumps(default)[:60]} is none of its symbols")
    made.symbols, made.default_symbol = symbols, default


def _texts(document: dict[str, Any], key: str, path: str) -> tuple[str, ...]:
    found = document.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise AvroSchemaError(f"{path or 'the record'}: {key} is not a list of texts")
    return tuple(found)


def _full_name(document: dict[str, Any], space: str, path: str) -> tuple[str, str]:
    """The full name of a definition, and the namespace of what is in it."""
    name, own = document.get("name"), document.get("namespace", space)
    if not isinstance(name, str) or not isinstance(own, str):
        raise AvroSchemaError(f"{path or 'the schema'}: a {document['type']} needs a name, and a namespace is a text")
    if "." in name:
        own, _, name = name.rpartition(".")
    full = f"{own}.{name}" if own else name
    # As Avro's Java library takes it: what a namespace is made of may be anything.
    if not name.isidentifier() or not all(full.split(".")):
        raise AvroSchemaError(f"{path or 'the schema'}: {full!r} is not a name")
    return full, own
