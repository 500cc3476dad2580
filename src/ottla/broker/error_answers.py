"""A response that says an error everywhere, for a request that nobody worked on (Kafka's `getErrorResponse`).

Made from the declarations: the response's arrays stand for the request's arrays in the same order, their elements for
its elements, and names, ids and partition numbers are taken over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import STRING, ArrayKind, Field, Kind, Message, Struct

#: A partition's number has one of these names.
PARTITION_FIELDS = ("partition_index", "partition", "index")


def error_response(api_key: int, version: int, request: Message | None, error: ErrorCode) -> Message | None:
    """The response to a request (None: it could not be read), or None where the version has no place for an error."""
    cls = API[api_key].response
    response: Message = cls()
    found = _fill(response, request, version, int(error))
    return response if found else None


def _fill(target: Struct, source: Any, version: int, error: int) -> bool:
    """Set the errors in a struct; returns whether there was a place for one."""
    found = False
    source_arrays = _arrays(source, version) if isinstance(source, Struct) else []
    for field in target.SCHEMA.fields:
        if not field.present(version) or field.tag is not None:
            continue
        if field.name == "error_code":
            target.error_code = error  # type: ignore[attr-defined]
            found = True
        elif isinstance(field.kind, ArrayKind):
            if isinstance(field.kind.element, Kind) or not _has_error(field.kind.element, version):
                continue
            elements = source_arrays.pop(0) if source_arrays else ()
            made = [_element(field.kind.element, element, version, error) for element in elements]
            setattr(target, field.name, [element for element, _ in made])
            found = found or any(has_error for _, has_error in made)
        elif source is not None:
            _take_over(target, field, source)
    return found


def _has_error(cls: type[Struct], version: int) -> bool:
    """Whether a struct, or one in an array of it, has a place for an error."""
    for field in cls.SCHEMA.fields:
        if field.present(version):
            kind = field.kind
            if field.name == "error_code":
                return True
            if isinstance(kind, ArrayKind) and not isinstance(kind.element, Kind) and _has_error(kind.element, version):
                return True
    return False


def _element(cls: type[Struct], source: Any, version: int, error: int) -> tuple[Struct, bool]:
    target = cls()
    return target, _fill(target, source, version, error)


def _arrays(source: Struct, version: int) -> list[Iterable[Any]]:
    """The arrays of a request, in order; null is taken for empty."""
    return [
        getattr(source, field.name) or ()
        for field in source.SCHEMA.fields
        if field.present(version) and isinstance(field.kind, ArrayKind)
    ]


def _take_over(target: Struct, field: Field, source: Any) -> None:
    """Give a field what names the same thing in the request."""
    if isinstance(source, str):
        if field.kind is STRING and not getattr(target, field.name):
            setattr(target, field.name, source)
        return
    if isinstance(source, int):
        if field.name in PARTITION_FIELDS:
            setattr(target, field.name, source)
        return
    names = PARTITION_FIELDS if field.name in PARTITION_FIELDS else (field.name,)
    for name in names:
        value = getattr(source, name, None)
        if isinstance(value, str | int | UUID):
            setattr(target, field.name, value)
