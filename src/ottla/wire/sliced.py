"""Large messages, in slices: decoded and encoded by generators that yield every few elements of arrays.

A request with very many elements must neither hold the event loop nor fill the memory with objects. So

- a large request is walked through once, which checks and counts everything; of its long arrays of structs only the
  positions are kept (`LazyArray`), and each iteration decodes their elements, one at a time;
- a response may have a `Mapped` array, whose elements are made while it is encoded, and dropped after;
- an array that stands in a response many times can be encoded once (`EncodedArray`);
- an array of results that come one after the other can be encoded as they come (`GrowingArray`).

The functions are compiled from the declarations, as those of `ottla.wire.compile`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Generator, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeVar

from ottla.wire.compile import DecoderWriter, EncoderWriter, records_length, varint
from ottla.wire.errors import TooManyElementsError, WireError
from ottla.wire.schema import ArrayKind, Kind, Message, Struct

M = TypeVar("M", bound=Message)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Elements between two yields: a yield costs some 10 µs, and where elements are dear it must not cost too much.
ELEMENTS_PER_SLICE: Final = 16
#: Arrays of structs with more elements are not kept as objects.
LAZY_ELEMENTS: Final = 64
#: Parts of an encoded message up to this size are joined with their neighbours; larger ones are sent as they are. What
#: stands in a message many times, such as the settings of a topic (1 KB and more), must not be copied each time.
JOINED_BYTES: Final = 512
#: Small parts are joined when there are more.
JOINED_PARTS: Final = 4096

Sliced = Generator[None, None, T]


class LazyArray:
    """A long array of structs in a frame: its elements are decoded whenever it is iterated.

    The frame must stay as it is meanwhile. Two iterations give equal elements, but not the same objects.
    """

    __slots__ = ("_buf", "_count", "_decode", "_ends", "_start")

    def __init__(
        self, buf: memoryview, start: int, count: int, decode: Callable[..., tuple[Any, int]], ends: dict[int, int]
    ) -> None:
        self._buf = buf
        self._start = start
        self._count = count
        self._decode = decode
        self._ends = ends

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        buf, decode, ends, p = self._buf, self._decode, self._ends, self._start
        for _ in range(self._count):
            element, p = decode(buf, p, ends)
            yield element


class Mapped:
    """An array of a response whose elements are made of others while it is encoded."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Collection[Any], make: Callable[[Any], Any]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._items)


def mapped(items: Collection[T], make: Callable[[T], Any]) -> Any:
    """An array with `make(item)` for each of the items, made while the message is encoded, once for each encoding."""
    return Mapped(items, make)


class Joined:
    """An array of a response whose elements are those of several arrays."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: tuple[Collection[Any], ...]) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return sum(map(len, self._arrays))

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._arrays)


def joined(*arrays: Collection[Any]) -> Any:
    """An array with the elements of these arrays, one after the other."""
    return Joined(arrays)


class EncodedArray:
    """An array that is encoded already, its count included."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts


def encoded_array(cls: type[Message], field: str, items: Collection[Struct], version: int) -> Any:
    """The array `field` of a message, or of a struct in it, encoded for any number of uses.

    `cls` is the message, by whose version the coding goes; the field is looked for by the class of its elements.
    """
    encode = _array_encoder(cls, field, version)
    parts: list[Any] = []
    encode(items, parts.append)
    return EncodedArray([b"".join(parts)])


class GrowingArray:
    """The array `field` of a message, encoded element by element: `add` keeps bytes, not objects.

    For a response to very many elements that takes many slices. WireError if an element cannot be encoded.
    """

    __slots__ = ("_count", "_encode", "_flexible", "_name", "_parts", "_small")

    def __init__(self, cls: type[Message], field: str, version: int) -> None:
        self._encode = _struct_encoder(cls, field, version)
        self._flexible = version >= cls.SCHEMA.flexible_since
        self._name = f"{field} of {cls.SCHEMA.name} version {version}"
        self._count = 0
        self._parts: list[bytes] = []
        self._small: list[bytes] = []

    def add(self, element: Struct) -> None:
        """Encode the next element."""
        try:
            self._encode(element, self._small.append)
        except (struct.error, UnicodeEncodeError, WireError) as error:
            raise WireError(f"{self._name} cannot be encoded: {error}") from error
        self._count += 1
        if len(self._small) > JOINED_PARTS:
            self._join()

    def encoded(self) -> Any:
        """The array, for a message that is encoded in slices. Nothing may be added afterwards."""
        self._join()
        head = varint(self._count + 1) if self._flexible else self._count.to_bytes(4, "big")
        return EncodedArray([head, *self._parts])

    def _join(self) -> None:
        self._parts.append(b"".join(self._small))
        self._small.clear()


def decode_in_slices(cls: type[M], frame: memoryview, version: int, offset: int, limit: int) -> Sliced[tuple[M, int]]:
    """As `codec.decode_prefix`, in slices, for a message of at most `limit` elements in all its arrays together.

    Raises `TooManyElementsError` beyond that, before anything is made of them, and WireError as the codec does.
    """
    name = cls.SCHEMA.name
    try:
        message, end = yield from _walker(cls, version)(frame, offset, {}, limit)
        return message, end
    except (struct.error, IndexError):
        raise WireError(f"{name} version {version} ends too early, after {len(frame)} bytes") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{name} version {version} has a string that is not UTF-8: {error}") from None
    except TooManyElementsError:
        raise
    except WireError as error:
        raise WireError(f"{name} version {version} is malformed: {error}") from None


def encode_in_slices(message: Message, version: int) -> Sliced[tuple[list[Any], int]]:
    """The parts of an encoded message and their bytes together, in slices; raises WireError as the codec does."""
    name = message.SCHEMA.name
    parts: list[Any] = []
    total = 0
    small: list[Any] = []
    try:
        for _ in _encoder(type(message), version)(message, small.append):
            if len(small) > JOINED_PARTS:
                total += join_small(small, parts)
                small.clear()
            yield
    except (struct.error, UnicodeEncodeError) as error:
        raise WireError(f"{name} version {version} cannot be encoded: {error}") from error
    except WireError as error:
        raise WireError(f"{name} version {version} cannot be encoded: {error}") from None
    total += join_small(small, parts)
    return parts, total


def join_small(pieces: list[Any], parts: list[Any]) -> int:
    """Add the pieces to the parts, small ones joined; returns their bytes."""
    total = 0
    small: list[bytes] = []
    for piece in pieces:
        total += records_length(piece)
        if type(piece) is bytes and len(piece) <= JOINED_BYTES:
            small.append(piece)
        else:
            if small:
                parts.append(b"".join(small))
                small.clear()
            parts.append(piece)
    if small:
        parts.append(b"".join(small))
    return total


# The compiled functions


def _once(function: F) -> F:
    """Keep what a function returns for each combination of arguments."""
    cached: Any = lru_cache(None)(function)
    return cached  # type: ignore[no-any-return]


@_once
def _walker(cls: type[Message], version: int) -> Callable[..., Sliced[Any]]:
    """A generator `walk(buf, p, ends, limit)` that reads a message of a version."""
    writer = _WalkWriter(version, version >= cls.SCHEMA.flexible_since, True)
    writer.line("def walk(buf, p, ends, limit):")
    writer.indent += 1
    writer.line("end = len(buf)")
    writer.line(f"seen, left = 0, {ELEMENTS_PER_SLICE}")
    target = writer.struct(cls)
    writer.flush()
    writer.line("yield")
    writer.line(f"return {target}, p")
    walk: Callable[..., Sliced[Any]] = writer.build(f"walker of {cls.SCHEMA.name} version {version}", "walk")
    return walk


@_once
def _element_decoder(cls: type[Struct], version: int, flexible: bool) -> Callable[..., tuple[Any, int]]:
    """A function `decode(buf, p, ends)` that reads an element of an array that was walked through."""
    writer = _ElementWriter(version, flexible, True)
    writer.line("def decode(buf, p, ends):")
    writer.indent += 1
    writer.line("end = len(buf)")
    target = writer.struct(cls)
    writer.flush()
    writer.line(f"return {target}, p")
    decode: Callable[..., tuple[Any, int]] = writer.build(
        f"element decoder of {cls.SCHEMA.name} version {version}", "decode"
    )
    return decode


@_once
def _encoder(cls: type[Message], version: int) -> Callable[[Any, Callable[[Any], None]], Iterator[None]]:
    """A generator `encode(o, w)` that writes a message of a version."""
    writer = _SlicedEncoderWriter(version, version >= cls.SCHEMA.flexible_since)
    writer.line("def encode(o, w):")
    writer.indent += 1
    writer.line(f"left = {ELEMENTS_PER_SLICE}")
    writer.struct(cls, "o")
    writer.flush()
    writer.line("yield")
    encode: Callable[..., Iterator[None]] = writer.build(
        f"sliced encoder of {cls.SCHEMA.name} version {version}", "encode"
    )
    return encode


@_once
def _array_encoder(cls: type[Message], field: str, version: int) -> Callable[[Any, Callable[[Any], None]], None]:
    writer = EncoderWriter(version, version >= cls.SCHEMA.flexible_since)
    writer.line("def encode(items, w):")
    writer.indent += 1
    found = _array_field(cls, field)
    assert found is not None, f"{cls.SCHEMA.name} has no array {field}"
    writer.array(found, "items", False)
    writer.flush()
    writer.line("return None")
    encode: Callable[..., None] = writer.build(f"encoder of {field} of {cls.SCHEMA.name} version {version}", "encode")
    return encode


@_once
def _struct_encoder(cls: type[Message], field: str, version: int) -> Callable[[Any, Callable[[Any], None]], None]:
    """A function `encode(o, w)` that writes one element of the array `field`."""
    writer = EncoderWriter(version, version >= cls.SCHEMA.flexible_since)
    writer.line("def encode(o, w):")
    writer.indent += 1
    found = _array_field(cls, field)
    assert found is not None, f"{cls.SCHEMA.name} has no array {field}"
    assert not isinstance(found.element, Kind)
    writer.struct(found.element, "o")
    writer.flush()
    writer.line("return None")
    encode: Callable[..., None] = writer.build(f"encoder of one of {field} of {cls.SCHEMA.name} {version}", "encode")
    return encode


def _array_field(cls: type[Struct], field: str) -> ArrayKind | None:
    for f in cls.SCHEMA.fields:
        kind = f.kind
        if isinstance(kind, ArrayKind):
            if f.name == field:
                return kind
            if not isinstance(kind.element, Kind):
                found = _array_field(kind.element, field)
                if found is not None:
                    return found
    return None


def _drop(_: object) -> None:
    """In place of a list's `append`."""


def _refuse_elements(seen: int, limit: int) -> TooManyElementsError:
    return TooManyElementsError(f"it has arrays of {seen} elements or more, at most {limit} are taken")


class _WalkWriter(DecoderWriter):
    """Reads everything once; elements of long arrays are dropped when they have been checked."""

    def counted(self, n: str) -> None:
        self.names["refuse_elements"] = _refuse_elements
        self.line(f"seen += {n}")
        self.line("if seen > limit: raise refuse_elements(seen, limit)")

    def elements(self, n: str, element: Kind | type[Struct], target: str, name: str) -> None:
        if isinstance(element, Kind):
            super().elements(n, element, target, name)
            return
        items, add, start = self.fresh("items"), self.fresh("add"), self.fresh("start")
        self.names["drop"] = _drop
        self.line(f"{items} = []")
        self.line(f"{start} = p")
        self.line(f"{add} = drop if {n} > {LAZY_ELEMENTS} else {items}.append")
        self.each(n, element, name, add)
        self.line(f"if {n} > {LAZY_ELEMENTS}:")
        self.line(f"    ends[{start}] = p")
        self.line(f"    {items} = {_lazy_array(self, element, start, n)}")
        self.line(f"{target} = {items}")

    def each(self, n: str, element: Kind | type[Struct], name: str, add: str) -> None:
        super().each(n, element, name, add)
        self.indent += 1
        _yield_at_times(self)
        self.indent -= 1


class _ElementWriter(DecoderWriter):
    """Reads an element that was checked; of long arrays in it, it only notes where they lie."""

    def elements(self, n: str, element: Kind | type[Struct], target: str, name: str) -> None:
        if isinstance(element, Kind):
            super().elements(n, element, target, name)
            return
        self.line(f"if {n} > {LAZY_ELEMENTS}:")
        self.line(f"    {target} = {_lazy_array(self, element, 'p', n)}")
        self.line("    p = ends[p]")
        self.line("else:")
        self.indent += 1
        super().elements(n, element, target, name)
        self.indent -= 1


class _SlicedEncoderWriter(EncoderWriter):
    """Writes, and yields between elements of arrays."""

    def array(self, kind: ArrayKind, value: str, nullable: bool) -> None:
        if isinstance(kind.element, Kind):
            super().array(kind, value, nullable)
            return
        self.names["EncodedArray"] = EncodedArray
        array = self.fresh("array")
        self.flush()
        self.line(f"{array} = {value}")
        self.line(f"if type({array}) is EncodedArray:")
        self.line(f"    for part in {array}.parts: {self.write}(part)")
        self.line("else:")
        self.indent += 1
        super().array(kind, array, nullable)
        self.flush()
        self.indent -= 1

    def element_written(self) -> None:
        _yield_at_times(self)


def _lazy_array(writer: DecoderWriter, element: type[Struct], start: str, n: str) -> str:
    """The expression that makes a `LazyArray`."""
    writer.names["LazyArray"] = LazyArray
    decode = writer.name("element", _element_decoder(element, writer.version, writer.flexible))
    return f"LazyArray(buf, {start}, {n}, {decode}, ends)"


def _yield_at_times(writer: DecoderWriter | EncoderWriter) -> None:
    writer.line("left -= 1")
    writer.line("if left < 0:")
    writer.line(f"    left = {ELEMENTS_PER_SLICE}")
    writer.line("    yield")
