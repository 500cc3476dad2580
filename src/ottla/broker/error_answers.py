"""Error responses for requests that are not handled (Kafka's `getErrorResponse`).

They are made from the declarations: the response's arrays correspond to the request's arrays in order, and so do their
elements; names, ids and partition numbers are copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ottla.cluster.refusal import TopicRefusal
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import STRING, ArrayKind, Field, Kind, Message, Struct

#: Names of the field with a partition's number.
PARTITION_FIELDS = ("partition_index", "partition", "index")
ERROR_FIELDS = ("error_code", "partition_error_code")
#: The refusal of a client that lacks an access to the cluster.
CLUSTER_DENIED = TopicRefusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)


def error_fields(refusal: TopicRefusal | None) -> dict[str, Any]:
    """Error code and message of a result; no error for None."""
    if refusal is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": int(refusal.error), "error_message": refusal.response_message}


def error_response(api_key: int, version: int, request: Message | None, error: ErrorCode) -> Message | None:
    """The error response to a request (None: it was unreadable); None if the version has no field for an error."""
    cls = API[api_key].response
    response: Message = cls()
    found = _fill(response, request, version, int(error))
    return response if found else None


def _fill(target: Struct, source: Any, version: int, error: int) -> bool:
    """Set the error fields in a struct; return whether there was any."""
    found = False
    source_arrays = _arrays(source, version) if isinstance(source, Struct) else []
    for field in target.SCHEMA.fields:
        if not field.present(version) or field.tag is not None:
            continue
        if field.name in ERROR_FIELDS:
            setattr(target, field.name, error)
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
    """Whether a struct, or one in an array of it, has an error field."""
    for field in cls.SCHEMA.fields:
        if field.present(version):
            kind = field.kind
            if field.name in ERROR_FIELDS:
                return True
            if isinstance(kind, ArrayKind) and not isinstance(kind.element, Kind) and _has_error(kind.element, version):
                return True
    return False


def _element(cls: type[Struct], source: Any, version: int, error: int) -> tuple[Struct, bool]:
    target = cls()
    return target, _fill(target, source, version, error)


def _arrays(source: Struct, version: int) -> list[Iterable[Any]]:
    """The arrays of a request, in order; null counts as empty."""
    return [
        getattr(source, field.name) or ()
        for field in source.SCHEMA.fields
        if field.present(version) and isinstance(field.kind, ArrayKind)
    ]


def _take_over(target: Struct, field: Field, source: Any) -> None:
    """Copy a field's value from the request, if the request names the same thing."""
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
