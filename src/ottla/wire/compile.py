"""The compiler: from a declaration to one flat Python function per class, version and direction.

`ottla.wire.codec`, and `ottla.wire.sliced` for large messages, ask for a function when it is first needed. Everything
that depends on the version is decided while compiling, so that what runs is straight-line code:

- neighbouring fields of fixed width, and the fixed-width length of a string or array behind them, are one
  `struct` call (a *run*),
- a compact length below 128 is one byte and never enters a loop,
- nested structs are written out in place; objects are made without their constructors.

A decoder takes `(buf, p)` and returns `(object, end)`; `buf` is bytes, or a memoryview for classes with records in
them, whose slices are handed out. It may fail with IndexError, struct.error or UnicodeDecodeError on malformed
input; the codec turns these into WireError. No length is trusted beyond the bytes that are there: a count is checked
against the smallest size of its elements before anything is made.

An encoder takes `(object, write)` and calls `write` with parts; wrong types come out as TypeError, AttributeError or
struct.error.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ottla.wire.errors import WireError
from ottla.wire.framing import TAGGED_FIELDS_LIMIT, read_varint
from ottla.wire.schema import BYTES, NEW, RECORDS, STRING, UUID, ArrayKind, Field, Kind, Struct, StructKind
from ottla.wire.strings import MAX_STRING_LENGTH

CACHED_UUIDS = 4096

Decoder = Callable[[bytes | memoryview, int], tuple[Any, int]]
Encoder = Callable[[Any, Callable[[Any], None]], None]


def compile_decoder(cls: type[Struct], version: int, *, flexible: bool) -> Decoder:
    """A function that reads objects of `cls` in a version."""
    writer = DecoderWriter(version, flexible, has_records(cls))
    writer.line("def decode(buf, p):")
    writer.indent += 1
    writer.line("end = len(buf)")
    target = writer.struct(cls)
    writer.flush()
    writer.line(f"return {target}, p")
    decoder: Decoder = writer.build(f"decoder of {cls.SCHEMA.name} version {version}", "decode")
    return decoder


def compile_encoder(cls: type[Struct], version: int, *, flexible: bool) -> Encoder:
    """A function that writes objects of `cls` in a version."""
    writer = EncoderWriter(version, flexible)
    writer.line("def encode(o, w):")
    writer.indent += 1
    writer.struct(cls, "o")
    writer.flush()
    writer.line("return None")
    encoder: Encoder = writer.build(f"encoder of {cls.SCHEMA.name} version {version}", "encode")
    return encoder


def has_records(cls: type[Struct]) -> bool:
    """Whether there are records in a class or in a struct inside it, so that it has to be read from a memoryview."""
    for f in cls.SCHEMA.fields:
        if f.kind is RECORDS:
            return True
        inner = _inner_struct(f.kind)
        if inner is not None and has_records(inner):
            return True
    return False


def _inner_struct(kind: Kind) -> type[Struct] | None:
    if isinstance(kind, StructKind):
        return kind.struct
    if isinstance(kind, ArrayKind) and not isinstance(kind.element, Kind):
        return kind.element
    return None


def smallest_size(element: Kind | type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes that an element of an array can take; at least 1."""
    if isinstance(element, Kind):
        if element.format is not None:
            return element.size
        if flexible:
            return 1
        return 2 if element is STRING else 4
    size = 1 if flexible else 0
    for f in element.SCHEMA.fields:
        if f.present(version) and f.tag is None:
            if isinstance(f.kind, StructKind):
                size += 1 if f.nullable(version) else smallest_size(f.kind.struct, version, flexible)
            else:
                size += smallest_size(f.kind, version, flexible)
    return max(size, 1)


# What generated code calls.


@lru_cache(CACHED_UUIDS)
def read_uuid(data: bytes) -> uuid.UUID:
    """A UUID of its 16 bytes; remembered, since topic ids come again and again."""
    return uuid.UUID(bytes=data)


def read_tagged_fields(buf: bytes | memoryview, p: int) -> tuple[dict[int, bytes], int]:
    """A section of tagged fields none of which is declared."""
    count, p = read_varint(buf, p)
    check_count(count, 2, len(buf) - p)
    if count > TAGGED_FIELDS_LIMIT:
        raise refuse_tags(count)
    fields = {}
    for _ in range(count):
        tag, p = read_varint(buf, p)
        size, p = read_varint(buf, p)
        if size > len(buf) - p:
            raise WireError(f"a tagged field of {size} bytes, {len(buf) - p} are there")
        fields[tag] = bytes(buf[p : p + size])
        p += size
    return fields, p


def check_count(count: int, smallest: int, left: int) -> None:
    """Refuse a count of elements that cannot be in the bytes that are left."""
    if count * smallest > left:
        raise WireError(f"{count} elements of at least {smallest} bytes announced, {left} bytes are there")


def refuse_length(name: str, length: int, left: int) -> WireError:
    """The error for a length that is negative, null where that is not allowed, or beyond the data."""
    if length < 0:
        return WireError(f"{name} is null or has a negative length ({length})")
    return WireError(f"{name} has {length} bytes, {left} are there")


def refuse_tag(name: str) -> WireError:
    """The error for a tagged field whose content does not fill its size exactly."""
    return WireError(f"the tagged field {name} does not have the size that it announces")


def refuse_tags(count: int) -> WireError:
    """The error for more tagged fields than are read."""
    return WireError(f"{count} tagged fields in one place, at most {TAGGED_FIELDS_LIMIT} are read")


def refuse_field(name: str, version: int) -> WireError:
    """The error for a value that the version has no field for."""
    return WireError(f"{name} is set and cannot be expressed in version {version}")


def records_length(records: Any) -> int:
    """The size of records in memory, or somewhere else (`ottla.wire.schema.SizedRecords`)."""
    if isinstance(records, (bytes, memoryview, bytearray)):
        return len(records)
    length: int = records.length
    return length


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_varint(length_plus_one: int) -> bytes:
    """The compact length of a string, which has the limit of the fixed-width one."""
    if length_plus_one > MAX_STRING_LENGTH + 1:
        raise WireError(f"a string of {length_plus_one - 1} bytes is too long, at most {MAX_STRING_LENGTH} are allowed")
    return varint(length_plus_one)


def tagged_fields(fields: dict[int, bytes]) -> bytes:
    """A section of tagged fields, in the order of the tags."""
    out = [varint(len(fields))]
    for tag in sorted(fields):
        out += (varint(tag), varint(len(fields[tag])), fields[tag])
    return b"".join(out)


_CALLED = {
    "ONE": [bytes((i,)) for i in range(128)],
    "check_count": check_count,
    "new": object.__new__,
    "pack": struct.pack,
    "read_tagged_fields": read_tagged_fields,
    "read_uuid": read_uuid,
    "read_varint": read_varint,
    "records_length": records_length,
    "refuse_field": refuse_field,
    "refuse_length": refuse_length,
    "refuse_tag": refuse_tag,
    "refuse_tags": refuse_tags,
    "string_varint": string_varint,
    "tagged_fields": tagged_fields,
    "unpack_from": struct.unpack_from,
    "varint": varint,
}


class _Writer:
    """Lines of source, names they refer to, and the run of fixed-width fields that is being collected."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.indent = 0
        self.names: dict[str, Any] = dict(_CALLED)
        self.counter = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def name(self, prefix: str, value: Any) -> str:
        """A global name for a value."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def struct_name(self, prefix: str, layout: str) -> str:
        """The global name of a function of a `struct` layout."""
        return f"{prefix}_{layout[1:].replace('?', 'o')}"

    def build(self, title: str, function: str) -> Any:
        exec(compile("\n".join(self.lines), f"<{title}>", "exec"), self.names)
        return self.names[function]


class DecoderWriter(_Writer):
    """The source of a decoder. `view`: it reads from a memoryview, not from bytes."""

    def __init__(self, version: int, flexible: bool, view: bool) -> None:
        super().__init__(version, flexible)
        self.view = view
        self.run: list[tuple[str, str]] = []  # format character, target
        self.after_run: list[str] = []

    def fixed(self, format: str, target: str) -> None:
        """Add a field of fixed width to the run."""
        self.run.append((format, target))

    def flush(self) -> None:
        """Read the run with one call."""
        if self.run:
            layout = struct.Struct(">" + "".join(item[0] for item in self.run))
            unpack = self.struct_name("unpack", layout.format)
            self.names[unpack] = layout.unpack_from
            targets = ", ".join(target for _, target in self.run)
            self.line(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(buf, p)")
            self.line(f"p += {layout.size}")
            for text in self.after_run:
                self.line(text)
            self.run.clear()
            self.after_run.clear()

    def struct(self, cls: type[Struct]) -> str:
        """Read a struct into a new variable."""
        o = self.fresh("o")
        self.line(f"{o} = new({self.name('C_' + cls.__name__ + '_', cls)})")
        tagged = []
        for f in cls.SCHEMA.fields:
            if not f.present(self.version):
                self.default(f, f"{o}.{f.name}")
            elif f.tag is None:
                self.field(f, f"{o}.{f.name}")
            else:
                self.default(f, f"{o}.{f.name}")
                tagged.append(f)
        if not self.flexible:
            self.line(f"{o}.unknown_tagged_fields = None")
        elif tagged:
            self.flush()
            self.tagged_section(o, tagged)
        else:
            self.flush()
            self.line("if buf[p]:")
            self.line(f"    {o}.unknown_tagged_fields, p = read_tagged_fields(buf, p)")
            self.line("else:")
            self.line(f"    {o}.unknown_tagged_fields = None")
            self.line("    p += 1")
        return o

    def default(self, f: Field, target: str) -> None:
        """Set a field that is not read."""
        if f.default is not NEW:
            self.line(f"{target} = {self.name('default', f.default)}")
        elif isinstance(f.kind, StructKind):
            o = self.fresh("o")
            self.line(f"{o} = new({self.name('C_' + f.kind.name + '_', f.kind.struct)})")
            for inner in f.kind.struct.SCHEMA.fields:
                self.default(inner, f"{o}.{inner.name}")
            self.line(f"{o}.unknown_tagged_fields = None")
            self.line(f"{target} = {o}")
        else:
            self.line(f"{target} = []")

    def tagged_section(self, o: str, fields: list[Field]) -> None:
        """Read the tagged fields of a struct (KIP-482)."""
        unknown, count, tag, size, stop = (self.fresh(name) for name in ("unknown", "count", "tag", "size", "stop"))
        self.line("if buf[p]:")
        self.indent += 1
        self.line(f"{unknown} = {{}}")
        self.line(f"{count}, p = read_varint(buf, p)")
        self.line(f"check_count({count}, 2, end - p)")
        self.line(f"if {count} > {TAGGED_FIELDS_LIMIT}: raise refuse_tags({count})")
        self.line(f"for _ in range({count}):")
        self.indent += 1
        self.line(f"{tag}, p = read_varint(buf, p)")
        self.line(f"{size}, p = read_varint(buf, p)")
        self.line(f"{stop} = p + {size}")
        self.line(f"if {stop} > end: raise refuse_length('a tagged field', {size}, end - p)")
        for index, f in enumerate(fields):
            self.line(f"{'elif' if index else 'if'} {tag} == {f.tag}:")
            self.indent += 1
            self.field(f, f"{o}.{f.name}")
            self.flush()
            self.line(f"if p != {stop}: raise refuse_tag({f.name!r})")
            self.indent -= 1
        self.line("else:")
        self.line(f"    {unknown}[{tag}] = bytes(buf[p:{stop}])")
        self.line(f"    p = {stop}")
        self.indent -= 1
        self.line(f"{o}.unknown_tagged_fields = {unknown} or None")
        self.indent -= 1
        self.line("else:")
        self.line(f"    {o}.unknown_tagged_fields = None")
        self.line("    p += 1")

    def field(self, f: Field, target: str) -> None:
        """Read a field."""
        kind = f.kind
        nullable = f.nullable(self.version)
        if isinstance(kind, StructKind):
            self.nested(kind, target, nullable)
        elif isinstance(kind, ArrayKind):
            self.array(kind, target, f.name, nullable)
        else:
            self.value(kind, target, f.name, nullable)

    def nested(self, kind: StructKind, target: str, nullable: bool) -> None:
        """Read a struct in a struct."""
        if nullable:
            mark = self.fresh("n")
            self.fixed("b", mark)
            self.flush()
            self.line(f"if {mark} < 0:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.indent += 1
        o = self.struct(kind.struct)
        self.flush()
        self.line(f"{target} = {o}")
        if nullable:
            self.indent -= 1

    def value(self, kind: Kind, target: str, name: str, nullable: bool) -> None:
        """Read a primitive."""
        if kind is UUID:
            data = self.fresh("u")
            self.fixed("16s", data)
            self.after_run.append(f"{target} = read_uuid({data})")
        elif kind.format is not None:
            self.fixed(kind.format, target)
        else:
            n = self.length("h" if kind is STRING else "i", MAX_STRING_LENGTH if kind is STRING else None)
            self.line(f"if {n} >= 0:")
            self.line(f"    q = p + {n}")
            self.line(f"    if q > end: raise refuse_length({name!r}, {n}, end - p)")
            self.line(f"    {target} = {self.slice(kind)}")
            self.line("    p = q")
            self.refuse_null(n, target, name, nullable)

    def slice(self, kind: Kind) -> str:
        """The value in buf[p:q]."""
        if kind is STRING:
            return "str(buf[p:q], 'utf-8')" if self.view else "buf[p:q].decode()"
        if kind is BYTES and self.view:
            return "bytes(buf[p:q])"
        return "buf[p:q]"

    def length(self, format: str, limit: int | None = None) -> str:
        """Read a length into a new variable: negative for null."""
        n = self.fresh("n")
        if not self.flexible:
            self.fixed(format, n)
            self.flush()
            return n
        self.flush()
        self.line(f"{n} = buf[p] - 1")
        self.line("p += 1")
        self.line(f"if {n} > 126:")
        self.line(f"    {n}, p = read_varint(buf, p - 1)")
        self.line(f"    {n} -= 1")
        if limit is not None:
            self.line(f"    if {n} > {limit}: raise refuse_length('a string', {n}, {limit})")
        return n

    def refuse_null(self, n: str, target: str, name: str, nullable: bool) -> None:
        """Read null where it is allowed; raise for any other negative length."""
        if nullable:
            self.line(f"elif {n} == -1:")
            self.line(f"    {target} = None")
        self.line("else:")
        self.line(f"    raise refuse_length({name!r}, {n}, 0)")

    def array(self, kind: ArrayKind, target: str, name: str, nullable: bool) -> None:
        """Read an array."""
        n = self.length("i")
        element = kind.element
        smallest = smallest_size(element, self.version, self.flexible)
        self.line(f"if {n} >= 0:")
        self.indent += 1
        self.line(f"if {n} * {smallest} > end - p: check_count({n}, {smallest}, end - p)")
        self.counted(n)
        if isinstance(element, Kind) and element.format is not None and element is not UUID:
            self.line(f"{target} = list(unpack_from(f'>{{{n}}}{element.format}', buf, p)) if {n} else []")
            self.line(f"p += {n} * {element.size}")
        else:
            self.elements(n, element, target, name)
        self.indent -= 1
        self.refuse_null(n, target, name, nullable)

    def counted(self, n: str) -> None:
        """The count of an array was read into `n`."""

    def elements(self, n: str, element: Kind | type[Struct], target: str, name: str) -> None:
        """Read the elements of an array that are not of fixed width."""
        items, add = self.fresh("items"), self.fresh("add")
        self.line(f"{items} = []")
        self.line(f"{add} = {items}.append")
        self.each(n, element, name, add)
        self.line(f"{target} = {items}")

    def each(self, n: str, element: Kind | type[Struct], name: str, add: str) -> None:
        """Read one element after the other and pass it to `add`."""
        self.line(f"for _ in range({n}):")
        self.indent += 1
        item = self.fresh("item")
        if isinstance(element, Kind):
            self.value(element, item, name, False)
        else:
            item = self.struct(element)
        self.flush()
        self.line(f"{add}({item})")
        self.indent -= 1


class EncoderWriter(_Writer):
    """The source of an encoder."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.run: list[tuple[str, str]] = []  # format character, expression
        self.write = "w"

    def fixed(self, format: str, expression: str) -> None:
        """Add a field of fixed width to the run."""
        self.run.append((format, expression))

    def packed(self, run: list[tuple[str, str]]) -> str:
        """The expression that packs a run."""
        if all(item == ("x", "") for item in run):
            return repr(bytes(len(run)))
        layout = struct.Struct(">" + "".join(item[0] for item in run))
        pack = self.struct_name("pack", layout.format)
        self.names[pack] = layout.pack
        return f"{pack}({', '.join(expression for _, expression in run if expression)})"

    def flush(self) -> None:
        """Write the run with one call."""
        if self.run:
            self.line(f"{self.write}({self.packed(self.run)})")
            self.run.clear()

    def struct(self, cls: type[Struct], o: str) -> None:
        """Write a struct."""
        tagged = []
        for f in cls.SCHEMA.fields:
            value = f"{o}.{f.name}"
            if not f.present(self.version):
                if not f.ignorable:
                    self.line(f"if {self.differs(f, value)}: raise refuse_field({f.name!r}, {self.version})")
            elif f.tag is None:
                self.field(f, value)
            else:
                tagged.append(f)
        if not self.flexible:
            self.line(f"if {o}.unknown_tagged_fields: raise refuse_field('unknown_tagged_fields', {self.version})")
        elif tagged:
            self.flush()
            self.tagged_section(o, tagged)
        else:
            self.line(f"if {o}.unknown_tagged_fields:")
            if self.run:
                self.line(f"    {self.write}({self.packed(self.run)})")
            self.line(f"    {self.write}(tagged_fields({o}.unknown_tagged_fields))")
            self.line("else:")
            self.line(f"    {self.write}({self.packed([*self.run, ('x', '')])})")
            self.run.clear()

    def differs(self, f: Field, value: str) -> str:
        """The condition that a value is not the default."""
        if f.default is None:
            return f"{value} is not None"
        if f.default is not NEW:
            return f"{value} != {self.name('default', f.default)}"
        if not isinstance(f.kind, StructKind):
            return f"{value} or {value} is None"
        inner = f.kind.struct.SCHEMA.fields
        if all(g.kind.format is not None for g in inner):
            parts = [self.differs(g, f"{value}.{g.name}") for g in inner]
            return " or ".join([*parts, f"{value}.unknown_tagged_fields"])
        return f"{value} != {self.name('default', f.new_default())}"

    def tagged_section(self, o: str, fields: list[Field]) -> None:
        """Write the tagged fields of a struct (KIP-482)."""
        tags, parts, outer = self.fresh("tags"), self.fresh("parts"), self.write
        self.line(f"{tags} = dict({o}.unknown_tagged_fields or ())")
        for f in fields:
            self.line(f"if {self.differs(f, f'{o}.{f.name}')}:")
            self.indent += 1
            self.line(f"{parts} = []")
            self.write = f"{parts}.append"
            self.field(f, f"{o}.{f.name}")
            self.flush()
            self.line(f"{tags}[{f.tag}] = b''.join({parts})")
            self.indent -= 1
        self.write = outer
        self.line(f"{outer}(tagged_fields({tags}) if {tags} else b'\\0')")

    def field(self, f: Field, value: str) -> None:
        """Write a field."""
        kind = f.kind
        nullable = f.nullable(self.version)
        if isinstance(kind, StructKind):
            self.nested(kind, value, nullable)
        elif isinstance(kind, ArrayKind):
            self.array(kind, value, nullable)
        elif kind is UUID:
            self.fixed("16s", f"{value}.bytes")
        elif kind.format is not None:
            self.fixed(kind.format, value)
        else:
            self.data(kind, value, nullable)

    def nested(self, kind: StructKind, value: str, nullable: bool) -> None:
        """Write a struct in a struct."""
        if nullable:
            self.flush()
            self.line(f"if {value} is None:")
            self.line(f"    {self.write}(b'\\xff')")
            self.line("else:")
            self.indent += 1
            self.line(f"{self.write}(b'\\x01')")
        inner = self.fresh("o")
        self.line(f"{inner} = {value}")
        self.struct(kind.struct, inner)
        if nullable:
            self.flush()
            self.indent -= 1

    def data(self, kind: Kind, value: str, nullable: bool) -> None:
        """Write a string, bytes or records: a length and what it counts."""
        data, n = self.fresh("data"), self.fresh("n")
        as_bytes = f"{value}.encode()" if kind is STRING else value
        length = "records_length" if kind is RECORDS else "len"
        more = " + 1" if self.flexible else ""
        if nullable:
            self.line(f"if {value} is None:")
            self.line(f"    {data} = b''")
            self.line(f"    {n} = {0 if self.flexible else -1}")
            self.line("else:")
            self.indent += 1
        self.line(f"{data} = {as_bytes}")
        self.line(f"{n} = {length}({data}){more}")
        if nullable:
            self.indent -= 1
        self.length(n, "h" if kind is STRING else "i", "string_varint" if kind is STRING else "varint")
        self.line(f"{self.write}({data})")

    def length(self, n: str, format: str, long: str = "varint") -> None:
        """Write a length."""
        if self.flexible:
            self.flush()
            self.line(f"{self.write}(ONE[{n}] if {n} < 128 else {long}({n}))")
        else:
            self.fixed(format, n)
            self.flush()

    def array(self, kind: ArrayKind, value: str, nullable: bool) -> None:
        """Write an array."""
        items, n = self.fresh("items"), self.fresh("n")
        self.line(f"{items} = {value}")
        more = " + 1" if self.flexible else ""
        if nullable:
            null = 0 if self.flexible else -1
            self.line(f"{n} = {null} if {items} is None else len({items}){more}")
        else:
            self.line(f"{n} = len({items}){more}")
        self.length(n, "i")
        element = kind.element
        self.line(f"if {items}:")
        self.indent += 1
        if isinstance(element, Kind) and element.format is not None and element is not UUID:
            self.line(f"{self.write}(pack(f'>{{len({items})}}{element.format}', *{items}))")
        else:
            item = self.fresh("item")
            self.line(f"for {item} in {items}:")
            self.indent += 1
            if not isinstance(element, Kind):
                self.struct(element, item)
            elif element is UUID:
                self.fixed("16s", f"{item}.bytes")
            else:
                self.data(element, item, False)
            self.flush()
            self.element_written()
            self.indent -= 1
        self.indent -= 1

    def element_written(self) -> None:
        """An element of an array was written."""
