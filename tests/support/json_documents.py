"""Seeded JSON documents, good, odd and broken, for decoders that must agree on them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import TypeVar

_Choice = TypeVar("_Choice")

#: Columns without a map, which are decoded in whole batches.
FLAT_DDL = (
    "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, s STRING, bin BINARY, dt DATE, "
    "ts TIMESTAMP, ntz TIMESTAMP_NTZ, dec DECIMAL(10,2), big DECIMAL(38,10), "
    "st STRUCT<x: INT, y: STRING, z: STRUCT<p: DOUBLE, q: ARRAY<INT>>>, al ARRAY<BIGINT>, `as` ARRAY<STRING>, "
    "ast ARRAY<STRUCT<k: STRING, v: DOUBLE, w: DATE>>, aa ARRAY<ARRAY<INT>>"
)
#: The same with maps, which are decoded document by document.
MAPS_DDL = FLAT_DDL + ", m MAP<STRING, INT>, ms MAP<STRING, STRUCT<a: INT, b: STRING>>, am ARRAY<MAP<STRING, DOUBLE>>"

_TEXTS = (
    "", "a", "plain text", "Grüße", "日本語", "🦦 otter", "\u0000", "tab\tnew\nline", 'quote " and \\ slash /',
    "\u2028", "NaN", "Infinity", "-INF", "+INF", "1", "-7", "1.5", " 2 ", "true", "null", "1,000.5", "1e3", "0x10",
    "AQID", "AQI=", "not base64!", "é", "\ud800", "x" * 300, "2024-02-29", "2023-02-29", "12345",
)  # fmt: skip
_NUMBERS = (
    "0", "-0", "1", "-1", "127", "128", "-128", "-129", "32767", "32768", "2147483647", "2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "123456789012345678901234567890", "1.0",
    "-0.0", "1.5", "0.1", "3.4028236e38", "1e39", "1e-46", "1.7976931348623157e308", "1e400", "-1e400", "1e-400",
    "1E5", "1e+2", "2.50", "2.505", "2.515", "99999999.99", "99999999.995", "100000000",
    "1234567890123456789012345678.0123456789", "0.00000000005", "0.00000000004", "1" + "0" * 40, "0." + "1" * 40,
    "16777217", "4.35", "1e2", "1.25e1",
)  # fmt: skip
_DATES = (
    "2024-02-29", "2023-02-29", "1970-01-01", "0001-01-01", "9999-12-31", "2024-1-2", "2024-01", "2024",
    "10000-01-01", "-0001-01-01", "2024-13-01", "2024-01-32", "2024-01-01T10:00:00", "2024-01-01 10:00:00",
    "2024-01-01T", "2024-01-01x", " 2024-01-01 ", "20240101", "19723", "-5", "1500-02-29", "1582-10-10", "01/02/2024",
    "2024-01-01T25:99",
)  # fmt: skip
_TIMES = (
    "2024-02-29T12:34:56Z", "2024-02-29T12:34:56.789Z", "2024-02-29T12:34:56.123456Z",
    "2024-02-29T12:34:56.123456789Z", "2024-02-29 12:34:56", "2024-02-29 12:34:56.1", "2024-02-29T12:34:56+02:00",
    "2024-02-29T12:34:56-0730", "2024-02-29T12:34:56+02", "2024-02-29T12:34:56 Europe/Berlin",
    "2024-02-29T12:34:56Europe/Berlin", "2024-02-29T12:34", "2024-02-29T12:34Z", "2024-02-29T12", "2024-02-29",
    "2024-02", "2024", "2023-02-29T00:00:00", "2024-02-29T24:00:00", "2024-02-29T23:59:60Z", "2024-02-29T1:2:3",
    "2024-2-9 1:2:3.4", "2024-02-29T12:34:56.Z", "T12:34:56", "12:34:56", "2024-02-29T12:34:56 UTC",
    "2024-02-29T12:34:56GMT+3", "2024-02-29T12:34:56GMT+03:30", "2024-02-29T12:34:56UTC+1",
    "2024-02-29T12:34:56+18:01", "2024-02-29T12:34:56+1:5", "1709210096", "10000-01-01T00:00:00Z",
    "-0044-03-15T12:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", " 2024-02-29T12:34:56Z ",
    "2024-02-29t12:34:56z", "2024-02-29T12:34:56.789 +01:00", "2024-02-29T12:34:56,789Z", "2024-03-31T02:30:00",
    "2024-03-10T02:30:00", "2024-11-03T01:30:00", "2024-02-29T12:34:56 PST", "2024-02-29T12:34:56EST",
    "2024-02-29 12:34:56 America/New_York", "2024-02-29T12:34:56.000000+00:00", "2024-02-29T12:34:56-00:00",
    "2024-02-29T00:00:00+14:00",
)  # fmt: skip
_ODD_SCALARS = ("NaN", "Infinity", "-Infinity", "-INF", "+INF", "+Infinity", "'single'", "'it\\'s'", "'\"'")
_BAD_SCALARS = (
    "tru", "nul", "TRUE", "None", "undefined", "01", "1.", ".5", "+1", "--1", "1e", "0x1F", '"unfinished', "", "@",
    "/* c */ 1", '"bad \\x escape"', '"\\u12"', '"raw \x01 control"', '"raw\nnewline"', "nan", "Inf", "1 2",
    '"a" "b"',
)  # fmt: skip


class Documents:
    """Documents drawn from one seed; most are good, each kind of odd one comes up often enough."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._makers: dict[str, Callable[[], str]] = {
            "b": lambda: self._pick(("true", "false")),
            "i8": lambda: str(self._random.randint(-128, 127)),
            "i16": lambda: str(self._random.randint(-32768, 32767)),
            "i": lambda: str(self._random.randint(-(2**31), 2**31 - 1)),
            "l": lambda: str(self._random.randint(-(2**63), 2**63 - 1)),
            "f": lambda: repr(self._random.uniform(-1e6, 1e6)),
            "d": lambda: repr(self._random.gauss(0, 1e9)),
            "s": self._text,
            "bin": lambda: self._pick(('"AQID"', '"AQI="', '""', '"not base64!"', '"AQ"', '"AQID\\n"')),
            "dt": lambda: json.dumps(self._date()),
            "ts": lambda: json.dumps(self._time()),
            "ntz": lambda: json.dumps(self._time()),
            "dec": self._decimal,
            "big": lambda: self._pick(_NUMBERS) if self._chance(0.1) else f"{self._random.getrandbits(80)}.25",
            "st": self._struct,
            "al": lambda: self._array(lambda: str(self._random.getrandbits(40))),
            "as": lambda: self._array(self._text),
            "ast": lambda: self._array(self._entry),
            "aa": lambda: self._array(lambda: self._array(lambda: str(self._random.getrandbits(20)))),
            "m": lambda: self._map(lambda: str(self._random.getrandbits(20))),
            "ms": lambda: self._map(
                lambda: self._object([("a", str(self._random.getrandbits(8))), ("b", self._text())])
            ),
            "am": lambda: self._array(lambda: self._map(lambda: repr(self._random.random()))),
            "extra": lambda: self._anything(2),
        }

    def take(self, count: int) -> list[bytes]:
        """The next `count` documents."""
        return [self._document() for _ in range(count)]

    def _document(self) -> bytes:
        kind = self._random.random()
        if kind < 0.30:
            return self._plain().encode("utf-8", "surrogatepass" if kind < 0.01 else "replace")
        if kind < 0.70:
            return self._odd().encode("utf-8", "replace")
        if kind < 0.80:
            return self._typed_wrong().encode("utf-8", "replace")
        if kind < 0.97:
            return self._broken(self._plain() if self._chance(0.5) else self._odd())
        return self._pick(_WHOLE)

    def _plain(self) -> str:
        names = self._random.sample(list(self._makers), self._random.randint(1, len(self._makers)))
        return self._object([(name, "null" if self._chance(0.05) else self._makers[name]()) for name in names])

    def _odd(self) -> str:
        """Good JSON with one field of any kind, some of them twice."""
        names = self._random.sample(list(self._makers), self._random.randint(1, 6))
        fields = [(name, self._makers[name]()) for name in names]
        name = self._pick(tuple(self._makers))
        odd: tuple[Callable[[], str], ...] = (lambda: self._anything(1), self._leaf, self._scalar)
        value = self._pick(odd)() if self._chance(0.6) else self._makers[name]()
        fields.insert(self._random.randint(0, len(fields)), (name, value))
        if self._chance(0.15):
            fields.append(self._pick(tuple(fields)))
        if self._chance(0.1):
            fields.append((fields[0][0], self._anything(1)))
        return self._object(fields)

    def _typed_wrong(self) -> str:
        return self._object([(name, self._anything(2)) for name in self._random.sample(list(self._makers), 3)])

    def _broken(self, text: str) -> bytes:
        data = text.encode("utf-8", "replace")
        cut = self._random.randrange(len(data) + 1)
        kind = self._random.random()
        if kind < 0.3:
            return data[:cut]
        if kind < 0.4:
            return (
                data[:cut]
                + self._pick((b"}", b"]", b",", b":", b'"', b"{", b"[", b"\\", b"x", b" ", b"\xff", b"\xc3", b"\x00"))
                + data[cut:]
            )
        if kind < 0.5:
            return data[:cut] + data[cut + 1 :]
        if kind < 0.6:
            return data + self._pick((b" garbage", b"}", b'{"s":"second"}', b"\n", b"  ", b",", b"\x00"))
        if kind < 0.65:
            return self._pick((b" ", b"\n\t", b"\xef\xbb\xbf", b"[", b"\xff", b"x")) + data
        if kind < 0.72:
            return text.replace(":", " : ").replace(",", " ,\n").encode("utf-8", "replace")
        name = self._pick(tuple(self._makers))
        value = self._pick(_BAD_SCALARS + _ODD_SCALARS)
        other = self._pick(tuple(self._makers))
        fields = [f'"{other}":{self._makers[other]()}', f'"{name}":{value}', f'"s":{self._text()}']
        if self._chance(0.3):
            self._random.shuffle(fields)
        return ("{" + ",".join(fields) + "}").encode("utf-8", "replace")

    def _anything(self, depth: int) -> str:
        if depth and self._chance(0.3):
            return self._array(lambda: self._anything(depth - 1))
        if depth and self._chance(0.3):
            names = self._random.sample(("x", "y", "z", "p", "q", "k", "v", "a", "b", "s"), self._random.randint(0, 4))
            return self._object([(name, self._anything(depth - 1)) for name in names])
        return self._scalar()

    def _leaf(self) -> str:
        """A struct, an array or a map of the schema, with one wrong leaf."""
        makers: tuple[Callable[[], str], ...] = (
            self._struct,
            lambda: self._array(self._entry),
            lambda: self._map(self._scalar),
        )
        return self._pick(makers)()

    def _scalar(self) -> str:
        kind = self._random.random()
        if kind < 0.35:
            return self._pick(_NUMBERS)
        if kind < 0.6:
            return self._text()
        if kind < 0.75:
            return json.dumps(self._pick(_DATES + _TIMES))
        if kind < 0.9:
            return self._pick(("true", "false", "null", "{}", "[]"))
        return self._pick(_ODD_SCALARS)

    def _text(self) -> str:
        text = self._pick(_TEXTS)
        return json.dumps(text, ensure_ascii=self._chance(0.5) or "\ud800" in text)

    def _date(self) -> str:
        if self._chance(0.4):
            return self._pick(_DATES)
        return f"{self._random.randint(1, 9999):04}-{self._random.randint(1, 12):02}-{self._random.randint(1, 28):02}"

    def _time(self) -> str:
        if self._chance(0.5):
            return self._pick(_TIMES + _DATES)
        day = f"{self._random.randint(1900, 2100)}-{self._random.randint(1, 12):02}-{self._random.randint(1, 28):02}"
        clock = f"{self._random.randrange(24):02}:{self._random.randrange(60):02}:{self._random.randrange(60):02}"
        return f"{day}T{clock}{self._pick(('', '.5', '.123', '.123456'))}{self._pick(('Z', '', '+01:00'))}"

    def _decimal(self) -> str:
        if self._chance(0.3):
            number = self._pick(_NUMBERS)
            return json.dumps(number) if self._chance(0.3) else number
        return f"{self._random.randint(-9999999, 9999999)}.{self._random.randrange(100):02}"

    def _struct(self) -> str:
        inner = self._object([("p", self._number()), ("q", self._array(lambda: str(self._random.getrandbits(16))))])
        fields = [("x", self._number()), ("y", self._text()), ("z", inner), ("more", self._anything(1))]
        return self._object(self._random.sample(fields, self._random.randint(0, 4)))

    def _entry(self) -> str:
        return self._object([("k", self._text()), ("v", self._number()), ("w", json.dumps(self._date()))])

    def _number(self) -> str:
        return self._scalar() if self._chance(0.1) else str(self._random.randint(-1000, 1000))

    def _array(self, make: Callable[[], str]) -> str:
        items = ["null" if self._chance(0.05) else make() for _ in range(self._random.randrange(4))]
        return "[" + ",".join(items) + "]"

    def _map(self, make: Callable[[], str]) -> str:
        return self._object(
            [(self._pick(("a", "b", "key", "", "ü")), make()) for _ in range(self._random.randrange(4))]
        )

    def _object(self, fields: list[tuple[str, str]]) -> str:
        return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in fields) + "}"

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, choices: tuple[_Choice, ...]) -> _Choice:
        return choices[self._random.randrange(len(choices))]


_WHOLE = (
    b"", b" ", b"\n", b"null", b"1", b"true", b'"text"', b"[]", b"{}", b"[{}]", b'[{"s":"x"}]', b"{", b"}", b"[",
    b"{]", b'{"s"', b'{"s":', b'{"s" "x"}', b"{s:1}", b"{'s':'x'}", b'{"s":"x",}', b'{,"s":"x"}', b"\x00",
    b"\xef\xbb\xbf{}", b"NaN", b'{"s":"x"}{"s":"y"}', b'{"l":1}}', b'{"s":[[[[[[1]]]]]]}',
    b'{"s": {"deep" : [1, 2.50, "x"] , "y":1e5} }', b'{"st":null}', b'{"S":"upper"}', b'{"\\u0073":"escaped name"}',
    b'{"l":1\n,"s":"x"\r\n}', b'{"l":1} // comment', b'{"s":"\xc3\x28"}', b'{"extra":"\xff","l":1}',
    b'{"s":"\xed\xa0\x80"}', b'{"s":"\xc0\x80"}', b'{"s":"\xf5\x80\x80\x80"}', b'{"l":1,"l":"x"}', b'{"l":"x","l":1}',
    b'{"l":1,"l":null}', b'{"st":{"x":1},"st":{"y":"b"}}', b'{"extra":tru,"l":1}', b'{"extra":{"a":tru},"l":1}',
)  # fmt: skip
