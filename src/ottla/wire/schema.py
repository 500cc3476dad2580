"""How messages are declared: one class per message for all its versions, version ranges on the fields.

    @struct
    class JoinGroupRequestProtocol(Struct):
        name: str = field(STRING)
        metadata: bytes = field(BYTES)

    @message(versions=(0, 9), flexible_since=6, api_key=11)
    class JoinGroupRequest(Message):
        group_id: str = field(STRING)
        rebalance_timeout_ms: int = field(INT32, since=1, default=-1, ignorable=True)
        protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))

A declared class is plain slotted data with a keyword constructor in which every field may be left out (it then has
its default, as in Apache Kafka). Reading and writing bytes is the business of `ottla.wire.codec`; a class knows
nothing about it. Constructors are built when a class is first used, so that declaring is cheap.

Semantics of the version ranges: `clients/src/main/resources/common/message/README.md` of Apache Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, dataclass_transform

ZERO_UUID = uuid.UUID(int=0)

MAX_VERSION = 32767


class SizedRecords(Protocol):
    """Records that are not in memory (a slice of a file): enough to announce them, see `ottla.wire.hot`."""

    @property
    def length(self) -> int:
        """Bytes."""


Records: TypeAlias = Any
"""Record batches as they are on the wire: a memoryview into the frame when decoded; bytes, a memoryview or
(only in a fetch response that is encoded as parts) a `SizedRecords` when encoded."""


class Kind:
    """A type of the protocol. `format` is its `struct` character where the width is fixed, else None."""

    __slots__ = ("default", "format", "name", "size")

    def __init__(self, name: str, format: str | None, size: int, default: Any) -> None:
        self.name = name
        self.format = format
        self.size = size
        self.default = default

    def __repr__(self) -> str:
        return self.name


class ArrayKind(Kind):
    """An array; `element` is a primitive kind or a struct class."""

    __slots__ = ("element",)

    def __init__(self, element: Kind | type[Struct]) -> None:
        inner = element.name if isinstance(element, Kind) else element.__name__
        super().__init__(f"[]{inner}", None, 0, NEW)
        self.element = element


class StructKind(Kind):
    """A struct nested in another without an array around it."""

    __slots__ = ("struct",)

    def __init__(self, struct: type[Struct]) -> None:
        super().__init__(struct.__name__, None, 0, NEW)
        self.struct = struct


class _New:
    """The default of arrays and structs: a new one for each object."""

    def __repr__(self) -> str:
        return "NEW"


NEW = _New()
_UNSET: Any = object()

BOOL = Kind("bool", "?", 1, False)
INT8 = Kind("int8", "b", 1, 0)
INT16 = Kind("int16", "h", 2, 0)
UINT16 = Kind("uint16", "H", 2, 0)
INT32 = Kind("int32", "i", 4, 0)
INT64 = Kind("int64", "q", 8, 0)
FLOAT64 = Kind("float64", "d", 8, 0.0)
UUID = Kind("uuid", "16s", 16, ZERO_UUID)
STRING = Kind("string", None, 0, "")
BYTES = Kind("bytes", None, 0, b"")
RECORDS = Kind("records", None, 0, None)


def array(element: Kind | type[Struct]) -> ArrayKind:
    """The kind of an array of primitives or of structs."""
    return ArrayKind(element)


class Field:
    """One field of a struct: its kind, and in which versions it is there, may be null, or is tagged."""

    __slots__ = ("default", "ignorable", "kind", "name", "nullable_since", "since", "tag", "until")

    def __init__(
        self, kind: Kind, since: int, until: int, nullable_since: int, default: Any, tag: int | None, ignorable: bool
    ) -> None:
        self.name = ""
        self.kind = kind
        self.since = since
        self.until = until
        self.nullable_since = nullable_since
        self.default = default
        self.tag = tag
        self.ignorable = ignorable

    def present(self, version: int) -> bool:
        """Whether the field is part of a version."""
        return self.since <= version <= self.until

    def nullable(self, version: int) -> bool:
        """Whether the field may be None in a version."""
        return version >= self.nullable_since

    def new_default(self) -> Any:
        """The value that an object has when nothing was given or read."""
        if self.default is not NEW:
            return self.default
        return self.kind.struct() if isinstance(self.kind, StructKind) else []

    def is_default(self, value: Any) -> bool:
        """Whether a value is the default, so that a tagged field is left out of the bytes."""
        if self.default is not NEW:
            return bool(value == self.default)
        if isinstance(self.kind, StructKind):
            return bool(value == self.kind.struct())
        return value is not None and not value

    def __repr__(self) -> str:
        return f"Field({self.name}: {self.kind})"


def field(
    kind: Kind | type[Struct],
    *,
    since: int = 0,
    until: int = MAX_VERSION,
    nullable_since: int = MAX_VERSION,
    default: Any = _UNSET,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field.

    `since` and `until` are its first and last version (both inclusive); from `nullable_since` on it may be None.
    With a `tag` it is a tagged field (KIP-482) in all its versions. An `ignorable` field is dropped silently when a
    message is encoded in a version without it; any other must then have its default value.
    """
    resolved = kind if isinstance(kind, Kind) else StructKind(kind)
    if default is _UNSET:
        default = resolved.default
    return Field(resolved, since, until, nullable_since, default, tag, ignorable)


class Schema:
    """The declaration of a class. `versions` and `flexible_since` have no meaning for a struct: its message rules."""

    __slots__ = ("api_key", "decoders", "encoders", "fields", "flexible_since", "has_records", "name", "versions")

    def __init__(self, name: str, fields: tuple[Field, ...]) -> None:
        self.name = name
        self.fields = fields
        self.versions: tuple[int, int] = (0, MAX_VERSION)
        self.flexible_since: int = MAX_VERSION
        self.api_key: int | None = None
        # What `ottla.wire.codec` finds out on first use, and its compiled functions by version.
        self.has_records = False
        self.encoders: dict[int, Callable[..., Any]] = {}
        self.decoders: dict[int, Callable[..., Any]] = {}


class Struct:
    """Base of all declared classes."""

    __slots__ = ("unknown_tagged_fields",)

    SCHEMA: ClassVar[Schema]
    unknown_tagged_fields: dict[int, bytes] | None
    """Tagged fields that were read and are not declared, by tag; written back when the object is encoded."""

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        init = _build_init(cls)
        cls.__init__ = init  # type: ignore[method-assign]
        init(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or type(self) is not type(other):
            return NotImplemented
        if (self.unknown_tagged_fields or None) != (other.unknown_tagged_fields or None):
            return False
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.SCHEMA.fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.SCHEMA.fields)
        if self.unknown_tagged_fields:
            shown += f", unknown_tagged_fields={self.unknown_tagged_fields!r}"
        return f"{type(self).__name__}({shown})"


class Message(Struct):
    """Base of requests, responses and data messages: what has versions of its own and can be encoded."""

    __slots__ = ()


def _build_init(cls: type[Struct]) -> Callable[..., None]:
    names: dict[str, Any] = {"NEW": NEW}
    parameters = []
    body = []
    for f in cls.SCHEMA.fields:
        if f.default is NEW:
            made = "[]"
            if isinstance(f.kind, StructKind):
                names[f"new_{f.name}"] = f.kind.struct
                made = f"new_{f.name}()"
            parameters.append(f"{f.name}=NEW")
            body.append(f"self.{f.name} = {made} if {f.name} is NEW else {f.name}")
        else:
            names[f"default_{f.name}"] = f.default
            parameters.append(f"{f.name}=default_{f.name}")
            body.append(f"self.{f.name} = {f.name}")
    body.append("self.unknown_tagged_fields = None")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    source = f"def __init__({signature}):\n    " + "\n    ".join(body)
    exec(compile(source, f"<constructor of {cls.__name__}>", "exec"), names)
    init: Callable[..., None] = names["__init__"]
    return init


S = TypeVar("S", bound=Struct)
M = TypeVar("M", bound=Message)


@dataclass_transform(kw_only_default=True)
def struct(cls: type[S]) -> type[S]:
    """Make a slotted class of a declaration of fields."""
    namespace = dict(cls.__dict__)
    fields = []
    for name, value in namespace.items():
        if isinstance(value, Field):
            value.name = name
            fields.append(value)
    for f in fields:
        del namespace[f.name]
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace["__slots__"] = tuple(f.name for f in fields)
    namespace["SCHEMA"] = Schema(cls.__name__, tuple(fields))
    slotted: Any = type(cls.__name__, cls.__bases__, namespace)
    return slotted  # type: ignore[no-any-return]


@dataclass_transform(kw_only_default=True)
def message(
    *, versions: tuple[int, int], flexible_since: int | None = None, api_key: int | None = None
) -> Callable[[type[M]], type[M]]:
    """Make a message of a declaration.

    `versions` are the first and the last, `flexible_since` is the first version with compact lengths and tagged
    fields (KIP-482), None where there is none.
    """

    def decorate(cls: type[M]) -> type[M]:
        declared = struct(cls)
        schema = declared.SCHEMA
        schema.versions = versions
        schema.flexible_since = MAX_VERSION if flexible_since is None else flexible_since
        schema.api_key = api_key
        return declared

    return decorate
