"""JSON objects to columns, byte by byte: the source of `ottla.records._json_native`. Use it through
`ottla.spark.decoding.json_columns`.

This is plain Python; the types that make it fast when it is compiled stand in `_json_native.pxd`. Both must do the
same, so numbers stay within 64 bits here, too.

What it accepts is JSON as RFC 8259 has it, nothing else, and it may refuse even that (a name twice, a name with an
escape, U+0000, more than `DEEPEST` levels of what is passed over): who calls it then asks a slower reader.
Positions are -1 where something is refused.
"""

from __future__ import annotations

from array import array
from typing import Any

from ottla.records.json_kinds import BOOLEAN, DECIMAL, DOUBLE, LIST, LONG, NUMBER, OBJECT, TEXT

try:
    import cython
except ImportError:
    from ottla.records import uncompiled as cython
if not cython.compiled:
    from ottla.records.uncompiled import (
        copy_octets,
        double_of,
        is_same,
        octets_of,
        put_double,
        put_int,
        put_long,
        resize,
        text_end,
    )

DEEPEST = 64
"""Levels of a value that is passed over."""
MOST_NAMES = 512
"""Names of an object whose order is remembered for the next one."""
NO_CHILD = -1
REFUSED = -2
MOST_DIGITS = 19
"""Digits that a number of 64 bits always holds."""
EXACT = 9007199254740992
"""2^53: every whole number up to it is a double, and so is every power of ten up to `EXACT_POWER`."""
EXACT_POWER = 22
MOST_EXPONENT = 100_000
MOST_PLACES = 38
"""Digits of a DECIMAL on each side of its point. Arrow converts more without a check."""
LARGEST = 0x7FFFFFFFFFFFFFFF
SMALLEST_MAGNITUDE = 0x8000000000000000
MOST_OCTETS = 0x7FFFFFFF
FIRST_ROOM = 1024

QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT, ZERO, NINE = b'"\\,:-+.09'
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = b"{}[]"
LOWER_E, UPPER_E, LOWER_U, LOWER_T, LOWER_F, LOWER_N = b"eEutfn"
LOWER_A, UPPER_A, LOWER_B, LOWER_R, SLASH = b"aAbr/"
SPACE, TAB, LINE_FEED, CARRIAGE_RETURN = b" \t\n\r"
BACKSPACE, FORM_FEED = b"\b\f"


class JsonColumn:
    """A column of values: what Arrow's arrays are made of.

    Bit i of `valid` is 1 unless value i is null. `ends` are numbers of 32 bits: where strings end in `data`, or lists
    among the values of the only child. `data` has numbers of 64 bits, or bits of BOOLEAN. An OBJECT has a child for
    each name; a name that an object lacks is null. The buffers have room behind what they hold.
    """

    __slots__ = ("children", "count", "data", "ends", "kind", "names", "nulls", "order", "used", "valid")

    def __init__(self, kind: int, children: list[JsonColumn], names: list[bytes]) -> None:
        self.kind = kind
        self.children = children
        #: With their closing quotes, as are those in `order`.
        self.names = {name + b'"': index for index, name in enumerate(names)}
        #: The names of the last object, each with its child or NO_CHILD, in turns.
        self.order: list[Any] = []
        self.count = 0
        self.nulls = 0
        self.used = 0
        self.valid = bytearray(FIRST_ROOM)
        self.ends = bytearray(FIRST_ROOM)
        self.data = bytearray(FIRST_ROOM)
        put_int(self.ends, 0, 0)

    def begin_row(self) -> None:
        """Make room for a row."""
        row = self.count
        if (row >> 3) >= len(self.valid):
            resize(self.valid, 2 * len(self.valid))
        if row & 7 == 0:
            self.valid[row >> 3] = 0
        kind = self.kind
        if kind in (LONG, DOUBLE):
            if 8 * (row + 1) > len(self.data):
                resize(self.data, 2 * len(self.data))
        elif kind == BOOLEAN:
            if (row >> 3) >= len(self.data):
                resize(self.data, 2 * len(self.data))
            if row & 7 == 0:
                self.data[row >> 3] = 0
        elif kind != OBJECT and 4 * (row + 2) > len(self.ends):
            resize(self.ends, 2 * len(self.ends))

    def put_null(self) -> None:
        """Add a null."""
        self.begin_row()
        row = self.count
        kind = self.kind
        self.nulls += 1
        if kind in (LONG, DOUBLE):
            put_long(self.data, row, 0)
        elif kind == OBJECT:
            for child in self.children:
                child.put_null()
        elif kind != BOOLEAN:
            put_int(self.ends, row + 1, self.used)
        self.count = row + 1

    def end_row(self) -> None:
        """A row that is not null has its value now."""
        row = self.count
        self.valid[row >> 3] |= 1 << (row & 7)
        self.count = row + 1

    def put_long_number(self, number: int) -> None:
        """Add a whole number."""
        self.begin_row()
        put_long(self.data, self.count, number)
        self.end_row()

    def put_double_number(self, number: float) -> None:
        """Add a number."""
        self.begin_row()
        put_double(self.data, self.count, number)
        self.end_row()

    def put_boolean(self, value: bool) -> None:
        """Add true or false."""
        self.begin_row()
        if value:
            self.data[self.count >> 3] |= 1 << (self.count & 7)
        self.end_row()

    def add_octets(self, source: Any, at: int, size: int) -> None:
        """Add octets to the string that is next. OverflowError beyond 2 GiB."""
        self._room_for_octets(size)
        copy_octets(self.data, self.used, source, at, size)
        self.used += size

    def add_octet(self, octet: int) -> None:
        """Add an octet to the string that is next."""
        self._room_for_octets(1)
        self.data[self.used] = octet
        self.used += 1

    def _room_for_octets(self, size: int) -> None:
        room = len(self.data)
        if size > room - self.used:
            if size > MOST_OCTETS - self.used:
                raise OverflowError("a column holds at most 2 GiB")
            while room - self.used < size:
                room *= 2
            resize(self.data, room)

    def end_text(self) -> None:
        """The string that was added is whole."""
        self.begin_row()
        put_int(self.ends, self.count + 1, self.used)
        self.end_row()


class JsonReader:
    """Reads objects into columns. `root` is an OBJECT."""

    __slots__ = ("data", "digits", "end", "exponent", "is_over", "is_whole", "mantissa", "next", "powers", "root")

    def __init__(self, root: JsonColumn) -> None:
        self.root = root
        self.powers = array("d", [float(10**power) for power in range(EXACT_POWER + 1)])
        self.data: Any = b""
        self.end = 0
        self.next = 0
        # The number that was read last is mantissa * 10^exponent, if it has at most MOST_DIGITS.
        self.mantissa = self.digits = self.exponent = 0
        self.is_whole = False
        #: Whether the object or list has ended of which a member was read last.
        self.is_over = False

    def read(self, data: Any, offsets: Any, first: int, count: int) -> int:
        """Read objects `first` and on; number i lies in `data` from number i of `offsets` to number i + 1.

        Returns how many were read before one that is refused. The columns are of no use then.
        """
        ends = offsets
        self.data = data
        size = len(data)
        if first < 0 or count < 0 or first + count >= len(ends):
            raise IndexError("no such objects")
        for index in range(first, first + count):
            at = ends[index]
            self.end = ends[index + 1]
            if at < 0 or self.end > size:
                raise IndexError("an object beyond the data")
            at = self._skip_space(at)
            if at >= self.end or self.data[at] != OPEN_OBJECT:
                return index - first
            at = self._object(self.root, at + 1)
            if at < 0 or self._skip_space(at) != self.end:
                return index - first
        return count

    def _skip_space(self, at: int) -> int:
        end = self.end
        while at < end:
            byte = self.data[at]
            if byte > SPACE or (byte != SPACE and byte != LINE_FEED and byte != TAB and byte != CARRIAGE_RETURN):
                break
            at += 1
        return at

    def _object(self, column: JsonColumn, at: int) -> int:
        """Read the object whose brace ends at `at`; where it ends."""
        end = self.end
        place = 0
        at = self._skip_space(at)
        if at < end and self.data[at] == CLOSE_OBJECT:
            self._end_object(column)
            return at + 1
        while at < end and self.data[at] == QUOTE:
            index = self._child(column, place, at + 1)
            place += 1
            at = self._skip_space(self.next)
            if index == REFUSED or at >= end or self.data[at] != COLON:
                return -1
            at = self._skip_space(at + 1)
            if index == NO_CHILD:
                at = self._pass_over(at, 0)
            else:
                child: JsonColumn = column.children[index]
                if child.count != column.count:  # It has this name twice.
                    return -1
                at = self._value(child, at)
            at = self._behind_member(at, CLOSE_OBJECT)
            if at < 0:
                return -1
            if self.is_over:
                self._end_object(column)
                return at
        return -1

    def _behind_member(self, at: int, closing: int) -> int:
        """The start of the next member behind one that ends at `at`; or, with `is_over`, the end of `closing`."""
        if at < 0:
            return -1
        at = self._skip_space(at)
        if at >= self.end:
            return -1
        byte = self.data[at]
        self.is_over = byte == closing
        if self.is_over:
            return at + 1
        return self._skip_space(at + 1) if byte == COMMA else -1

    def _end_object(self, column: JsonColumn) -> None:
        children = column.children
        for index in range(len(children)):
            child: JsonColumn = children[index]
            if child.count == column.count:
                child.put_null()
        column.begin_row()
        column.end_row()

    def _child(self, column: JsonColumn, place: int, at: int) -> int:
        """The child whose name begins at `at`, or NO_CHILD; `next` is behind its quote. REFUSED if it is not a name.

        The names of most objects come in the order of the object before.
        """
        order = column.order
        if 2 * place < len(order):
            known: bytes = order[2 * place]
            self.next = at + len(known)
            if self.next <= self.end and is_same(known, self.data, at, len(known)):
                return int(order[2 * place + 1])
        end = text_end(self.data, at, self.end)
        if end >= self.end or self.data[end] != QUOTE:
            return REFUSED
        self.next = end + 1
        name = octets_of(self.data, at, self.next - at)
        index = column.names.get(name, NO_CHILD)
        if 2 * place < len(order):
            order[2 * place] = name
            order[2 * place + 1] = index
        elif place < MOST_NAMES:
            order.append(name)
            order.append(index)
        return int(index)

    def _value(self, column: JsonColumn, at: int) -> int:
        """Read a value of the column's kind, or null."""
        if at >= self.end:
            return -1
        byte = self.data[at]
        kind = column.kind
        if byte == LOWER_N:
            if not self._is_word(at, b"null"):
                return -1
            column.put_null()
            return at + 4
        if kind == TEXT:
            return self._text(column, at + 1) if byte == QUOTE else -1
        if kind == OBJECT:
            return self._object(column, at + 1) if byte == OPEN_OBJECT else -1
        if kind == LIST:
            return self._list(column, at + 1) if byte == OPEN_LIST else -1
        if kind == BOOLEAN:
            return self._boolean(column, at, byte)
        return self._number_of(column, at)

    def _boolean(self, column: JsonColumn, at: int, byte: int) -> int:
        if byte == LOWER_T and self._is_word(at, b"true"):
            column.put_boolean(True)
            return at + 4
        if byte == LOWER_F and self._is_word(at, b"false"):
            column.put_boolean(False)
            return at + 5
        return -1

    def _is_word(self, at: int, word: bytes) -> bool:
        return len(word) <= self.end - at and is_same(word, self.data, at, len(word))

    def _list(self, column: JsonColumn, at: int) -> int:
        end = self.end
        child: JsonColumn = column.children[0]
        at = self._skip_space(at)
        if at < end and self.data[at] == CLOSE_LIST:
            at += 1
        else:
            self.is_over = False
            while not self.is_over:
                at = self._behind_member(self._value(child, at), CLOSE_LIST)
                if at < 0:
                    return -1
        column.used = child.count
        if column.used > MOST_OCTETS:
            raise OverflowError("a column holds at most 2^31 values of lists")
        column.end_text()
        return at

    def _number_of(self, column: JsonColumn, at: int) -> int:
        end = self._number(at)
        if end < 0:
            return -1
        kind = column.kind
        if kind == DECIMAL and (
            self.exponent < -MOST_PLACES or (self.mantissa and self.digits + self.exponent > MOST_PLACES)
        ):
            return -1
        if kind in (NUMBER, DECIMAL):
            column.add_octets(self.data, at, end - at)
            column.end_text()
            return end
        is_negative = self.data[at] == MINUS
        if kind == LONG:
            if not self.is_whole or self.digits > MOST_DIGITS:
                return -1
            if self.mantissa > (SMALLEST_MAGNITUDE if is_negative else LARGEST):
                return -1
            column.put_long_number(-self.mantissa if is_negative else self.mantissa)
            return end
        return self._double(column, at, end, is_negative)

    def _double(self, column: JsonColumn, at: int, end: int, is_negative: bool) -> int:
        exponent = self.exponent
        if self.digits <= MOST_DIGITS and self.mantissa <= EXACT and -EXACT_POWER <= exponent <= EXACT_POWER:
            # Both are exact, so the result is rounded once, and is the nearest.
            number = float(self.mantissa)
            number = number / self.powers[-exponent] if exponent < 0 else number * self.powers[exponent]
            column.put_double_number(-number if is_negative else number)
            return end
        number = double_of(self.data, at, end - at)
        # Beyond what a double holds.
        if number - number != 0.0 or (number == 0.0 and self.mantissa != 0):
            return -1
        column.put_double_number(number)
        return end

    def _number(self, at: int) -> int:
        """Read a number; where it ends."""
        end = self.end
        self.mantissa = self.digits = self.exponent = 0
        self.is_whole = True
        if at < end and self.data[at] == MINUS:
            at += 1
        if at >= end:
            return -1
        if self.data[at] == ZERO:
            at += 1
        else:
            start = at
            at = self._digits(at)
            if at == start:
                return -1
        if at < end and self.data[at] == POINT:
            self.is_whole = False
            start = at + 1
            at = self._digits(start)
            if at == start:
                return -1
            self.exponent = start - at
        if at < end and (self.data[at] == LOWER_E or self.data[at] == UPPER_E):
            self.is_whole = False
            at = self._exponent(at + 1)
        return at

    def _digits(self, at: int) -> int:
        """Add digits to the mantissa; where they end."""
        end = self.end
        while at < end:
            byte = self.data[at]
            if byte < ZERO or byte > NINE:
                break
            if self.mantissa or byte != ZERO:
                self.digits += 1
                if self.digits <= MOST_DIGITS:
                    self.mantissa = self.mantissa * 10 + (byte - ZERO)
            at += 1
        return at

    def _exponent(self, at: int) -> int:
        end = self.end
        is_negative = at < end and self.data[at] == MINUS
        if at < end and (self.data[at] == MINUS or self.data[at] == PLUS):
            at += 1
        start = at
        exponent = 0
        while at < end:
            byte = self.data[at]
            if byte < ZERO or byte > NINE:
                break
            if exponent < MOST_EXPONENT:
                exponent = exponent * 10 + (byte - ZERO)
            at += 1
        if at == start:
            return -1
        self.exponent += -exponent if is_negative else exponent
        return at

    def _text(self, column: JsonColumn, at: int) -> int:
        """Read a string whose quote ends at `at`; where it ends."""
        end = self.end
        while True:
            start = at
            at = text_end(self.data, start, end)
            if at >= end:
                return -1
            column.add_octets(self.data, start, at - start)
            if self.data[at] == QUOTE:
                column.end_text()
                return at + 1
            if self.data[at] != BACKSLASH:
                return -1
            code_point = self._escape(at + 1)
            if code_point <= 0:
                return -1
            add_code_point(column, code_point)
            at = self.next

    def _skip_text(self, at: int) -> int:
        end = self.end
        while True:
            at = text_end(self.data, at, end)
            if at >= end:
                return -1
            if self.data[at] == QUOTE:
                return at + 1
            if self.data[at] != BACKSLASH or self._escape(at + 1) <= 0:
                return -1
            at = self.next

    def _escape(self, at: int) -> int:
        """The code point of an escape whose backslash ends at `at`, -1 for none; `next` is where it ends."""
        if at >= self.end:
            return -1
        byte = self.data[at]
        self.next = at + 1
        if byte in (QUOTE, BACKSLASH, SLASH):
            return int(byte)
        if byte == LOWER_N:
            return LINE_FEED
        if byte == LOWER_T:
            return TAB
        if byte == LOWER_R:
            return CARRIAGE_RETURN
        if byte == LOWER_B:
            return BACKSPACE
        if byte == LOWER_F:
            return FORM_FEED
        if byte != LOWER_U:
            return -1
        high = self._hexadecimal(at + 1)
        self.next = at + 5
        if high < 0xD800 or high > 0xDFFF:
            return high
        at += 5
        if high > 0xDBFF or self.end - at < 6 or self.data[at] != BACKSLASH or self.data[at + 1] != LOWER_U:
            return -1
        low = self._hexadecimal(at + 2)
        self.next = at + 6
        if low < 0xDC00 or low > 0xDFFF:
            return -1
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)

    def _hexadecimal(self, at: int) -> int:
        """The number of four hexadecimal digits, -1 where they are none."""
        if self.end - at < 4:
            return -1
        number = 0
        for place in range(at, at + 4):
            byte = self.data[place]
            if ZERO <= byte <= NINE:
                digit = byte - ZERO
            elif LOWER_A <= byte < LOWER_A + 6:
                digit = byte - LOWER_A + 10
            elif UPPER_A <= byte < UPPER_A + 6:
                digit = byte - UPPER_A + 10
            else:
                return -1
            number = number * 16 + digit
        return number

    def _pass_over(self, at: int, depth: int) -> int:
        """The end of the value that begins at `at`."""
        if at >= self.end or depth > DEEPEST:
            return -1
        byte = self.data[at]
        if byte == QUOTE:
            return self._skip_text(at + 1)
        if byte == OPEN_OBJECT:
            return self._pass_over_members(at + 1, depth, CLOSE_OBJECT)
        if byte == OPEN_LIST:
            return self._pass_over_members(at + 1, depth, CLOSE_LIST)
        if byte == LOWER_T:
            return at + 4 if self._is_word(at, b"true") else -1
        if byte == LOWER_F:
            return at + 5 if self._is_word(at, b"false") else -1
        if byte == LOWER_N:
            return at + 4 if self._is_word(at, b"null") else -1
        return self._number(at)

    def _pass_over_members(self, at: int, depth: int, closing: int) -> int:
        end = self.end
        at = self._skip_space(at)
        if at < end and self.data[at] == closing:
            return at + 1
        while at < end:
            if closing == CLOSE_OBJECT:
                if self.data[at] != QUOTE:
                    return -1
                at = self._skip_text(at + 1)
                if at < 0:
                    return -1
                at = self._skip_space(at)
                if at >= end or self.data[at] != COLON:
                    return -1
                at = self._skip_space(at + 1)
            at = self._behind_member(self._pass_over(at, depth + 1), closing)
            if at < 0 or self.is_over:
                return at
        return -1


def add_code_point(column: JsonColumn, code_point: int) -> None:
    """Add a character in UTF-8."""
    if code_point < 0x80:
        column.add_octet(code_point)
    else:
        if code_point < 0x800:
            column.add_octet(0xC0 | (code_point >> 6))
        else:
            if code_point < 0x10000:
                column.add_octet(0xE0 | (code_point >> 12))
            else:
                column.add_octet(0xF0 | (code_point >> 18))
                column.add_octet(0x80 | ((code_point >> 12) & 0x3F))
            column.add_octet(0x80 | ((code_point >> 6) & 0x3F))
        column.add_octet(0x80 | (code_point & 0x3F))
