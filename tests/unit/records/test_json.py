"""JSON objects to columns, in plain Python and compiled: each test runs with both."""

from __future__ import annotations

from struct import unpack
from types import ModuleType
from typing import Any

import numpy
import pytest

from ottla.records import _json
from ottla.records.json_kinds import BOOLEAN, DECIMAL, DOUBLE, LIST, LONG, NUMBER, OBJECT, TEXT

pytestmark = pytest.mark.spec("D1")

FIELDS = {"t": TEXT, "n": LONG, "d": DOUBLE, "b": BOOLEAN, "x": NUMBER}
LARGEST = 2**63 - 1


@pytest.fixture(params=["python", "compiled"])
def reader(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "python":
        return _json
    return pytest.importorskip("ottla.records._json_native", reason="not compiled here")


def root(reader: ModuleType, fields: dict[str, Any]) -> Any:
    """A column for each field; {} stands for an object, [] for a list."""

    def column(kind: Any) -> Any:
        if isinstance(kind, dict):
            return reader.JsonColumn(OBJECT, [column(each) for each in kind.values()], [name.encode() for name in kind])
        if isinstance(kind, list):
            return reader.JsonColumn(LIST, [column(kind[0])], [])
        return reader.JsonColumn(kind, [], [])

    return column(fields)


def read(reader: ModuleType, fields: dict[str, Any], *documents: bytes) -> list[Any] | int:
    """The values of each object, or how many were read before one was refused."""
    made = root(reader, fields)
    offsets = numpy.cumsum([0, *map(len, documents)], dtype=numpy.int32)
    done = reader.JsonReader(made).read(b"".join(documents), offsets, 0, len(documents))
    return [value(made, row) for row in range(made.count)] if done == len(documents) else done


def value(column: Any, row: int) -> Any:
    if not column.valid[row >> 3] >> (row & 7) & 1:
        return None
    if column.kind == OBJECT:
        return tuple(value(child, row) for child in column.children)
    if column.kind in (LONG, DOUBLE):
        return unpack("=q" if column.kind == LONG else "=d", column.data[8 * row : 8 * row + 8])[0]
    if column.kind == BOOLEAN:
        return bool(column.data[row >> 3] >> (row & 7) & 1)
    start, end = unpack("=ii", column.ends[4 * row : 4 * row + 8])
    if column.kind == LIST:
        return [value(column.children[0], each) for each in range(start, end)]
    return column.data[start:end].decode()


def only(reader: ModuleType, kind: Any, text: str) -> Any:
    """The only field of one object, REFUSED for none."""
    found = read(reader, {"f": kind}, b'{"f":%s}' % text.encode())
    return REFUSED if isinstance(found, int) else found[0][0]


REFUSED = object()


def test_values_of_all_kinds(reader: ModuleType) -> None:
    document = b'{"t":"text","n":12,"d":1.5,"b":true,"x":12.50}'
    assert read(reader, FIELDS, document) == [("text", 12, 1.5, True, "12.50")]


def test_names_in_another_order_and_missing_and_null_and_unknown(reader: ModuleType) -> None:
    documents = (
        b'{"n":1,"t":"a"}',
        b'{"t":"b","n":2,"d":null,"b":false}',
        b'{"other":{"n":[1,{"t":"x"}]},"n":3,"longer than others":"}"}',
        b"{}",
        b'{"n":4,"nn":5,"":6}',
    )
    rows = read(reader, FIELDS, *documents)
    nothing = (None,) * 5
    assert rows == [
        ("a", 1, *nothing[:3]),
        ("b", 2, None, False, None),
        (None, 3, *nothing[:3]),
        nothing,
        (None, 4, *nothing[:3]),
    ]


def test_objects_and_lists_in_each_other(reader: ModuleType) -> None:
    fields = {"o": {"a": LONG, "l": [TEXT]}, "l": [[{"a": LONG}]]}
    documents = (
        b'{"o":{"a":1,"l":["x",null,"y"]},"l":[[{"a":1},null,{}],[],null]}',
        b'{"l":[],"o":{}}',
        b'{"o":null,"l":null}',
        b'{"l":[[{"a":7}]]}',
    )
    assert read(reader, fields, *documents) == [
        ((1, ["x", None, "y"]), [[(1,), None, (None,)], [], None]),
        ((None, None), []),
        (None, None),
        (None, [[(7,)]]),
    ]


def test_space_of_all_kinds(reader: ModuleType) -> None:
    document = b' \t\r\n{ "l" : [ 1 , 2 ] , "z" : [ { "a" : null } , [ ] , { } ] , "n" : 3 \n} \n'
    assert read(reader, {"l": [LONG], "n": LONG}, document) == [([1, 2], 3)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("-0", 0), ("7", 7), ("-7", -7), (str(LARGEST), LARGEST), (str(-LARGEST - 1), -LARGEST - 1),
        (str(LARGEST + 1), REFUSED), (str(-LARGEST - 2), REFUSED), ("9" * 20, REFUSED), ("1" + "0" * 40, REFUSED),
        ("1.0", REFUSED), ("1e2", REFUSED), ("01", REFUSED), ("-", REFUSED), ("+1", REFUSED), ("1a", REFUSED),
        ('"1"', REFUSED), ("true", REFUSED), ("[1]", REFUSED), ("nul", REFUSED), ("null", None), ("", REFUSED),
    ],
)  # fmt: skip
def test_whole_numbers(reader: ModuleType, text: str, number: Any) -> None:
    assert only(reader, LONG, text) == number


@pytest.mark.parametrize(
    "text",
    [
        "0", "-0.0", "1", "0.1", "1.5e3", "1E-7", "123456789012345678", "9007199254740993", "0.30000000000000004",
        "1e22", "1e23", "123456789e-23", "2.2250738585072014e-308", "5e-324", "1.7976931348623157e308", "3e+5",
        "0.000000000000000000000000000001", "1" + "0" * 30, "0e999999999", "7" * 400 + "e-390",
    ],
)  # fmt: skip
def test_numbers_are_the_nearest_doubles(reader: ModuleType, text: str) -> None:
    found = only(reader, DOUBLE, text)
    assert (found, str(found)) == (float(text), str(float(text)))


@pytest.mark.parametrize(
    "text", ["1e400", "-1e400", "1e-400", "1.", ".5", "1e", "1e+", "NaN", "Infinity", "0x1", "--1"]
)
def test_numbers_that_are_refused(reader: ModuleType, text: str) -> None:
    assert only(reader, DOUBLE, text) is REFUSED


def test_characters_of_numbers_are_kept(reader: ModuleType) -> None:
    assert only(reader, NUMBER, "-12.3400E+2") == "-12.3400E+2"
    assert only(reader, NUMBER, '"12"') is REFUSED


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('""', ""), ('"plain"', "plain"), ('"ä€😀"', "ä€😀"), (r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
        (r'"\u0041\u00e4\u20AC\ud83d\ude00z"', "Aä€😀z"), ('"' + "long" * 500 + r'\n"', "long" * 500 + "\n"),
        ('"12345678\\n"', "12345678\n"), ('"1234567\\n"', "1234567\n"),
        (r'"\u0000"', REFUSED), (r'"\ud83d"', REFUSED), (r'"\ud83dx\ude00"', REFUSED), (r'"\ude00"', REFUSED),
        (r'"\ud83d\u0041"', REFUSED), (r'"\u12g4"', REFUSED), (r'"\x41"', REFUSED), ('"a\nb"', REFUSED),
        ('"\x1f"', REFUSED), ("'a'", REFUSED), ('"a', REFUSED), ('"\\', REFUSED), (r'"\u12', REFUSED), ("1", REFUSED),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [TEXT, None], ids=["wanted", "passed over"])
def test_strings(reader: ModuleType, text: str, found: Any, kind: int | None) -> None:
    if kind is not None:
        assert only(reader, kind, text) == found
        return
    rows = read(reader, {"n": LONG}, b'{"s":%s,"n":1}' % text.encode())
    refused = found is REFUSED and text != "1"
    assert rows == (0 if refused else [(1,)])


@pytest.mark.parametrize(
    "document",
    [
        b"", b" ", b"null", b"[]", b"{", b"}", b'{"n"}', b'{"n":}', b'{"n":1', b'{"n":1,}', b'{,"n":1}', b'{"n":1]',
        b'{"n":1}x', b'{"n":1}{"n":2}', b'{n:1}', b'{"n" 1}', b'{"z":[1,]}', b'{"z":[1}', b'{"z":{"a":1]}',
        b'{"z":{a:1}}', b'{"z":{"a" 1}}', b'{"z":tru}', b'{"z":falze}', b'{"z":nul', b'{"z":01}', b'{"z":{"a":1,}}',
        b'{"z":[', b'{"z":{', b'{"z":{"a"', b'{"z":{"a":', b'{"n":1,"n":2}', b'{"n":null,"n":2}',
        b'{"\\u006e":1}', b'{"n\x01":1}',
        b'{"z":' + b"[" * 100 + b"]" * 100 + b"}",
    ],
)  # fmt: skip
def test_documents_that_are_refused(reader: ModuleType, document: bytes) -> None:
    assert read(reader, {"n": LONG}, b'{"n":1}', document, b'{"n":2}') == 1


def test_what_follows_in_the_data_is_not_looked_at(reader: ModuleType) -> None:
    data, whole = b'{"n":12}', root(reader, {"n": LONG})
    for end in range(len(data)):
        offsets = numpy.array([0, end], dtype=numpy.int32)
        assert reader.JsonReader(root(reader, {"n": LONG})).read(data, offsets, 0, 1) == 0
    assert reader.JsonReader(whole).read(data, numpy.array([0, len(data)], dtype=numpy.int32), 0, 1) == 1


@pytest.mark.parametrize("offsets", [[0, 9], [-1, 8], [0]])
def test_offsets_beyond_the_data(reader: ModuleType, offsets: list[int]) -> None:
    with pytest.raises(IndexError):
        reader.JsonReader(root(reader, {"n": LONG})).read(b'{"n":12}', numpy.array(offsets, dtype=numpy.int32), 0, 1)


def test_columns_grow(reader: ModuleType) -> None:
    count = 3_000
    documents = [b'{"n":%d,"t":"%s","b":%s,"l":[%d,%d]}' % (n, b"x" * (n % 50), b"true" if n % 3 else b"null", n, n)
                 for n in range(count)]  # fmt: skip
    rows = read(reader, {"n": LONG, "t": TEXT, "b": BOOLEAN, "l": [LONG], "o": {"a": DOUBLE}}, *documents)
    assert rows == [(n, "x" * (n % 50), True if n % 3 else None, [n, n], None) for n in range(count)]


def test_more_names_than_are_remembered(reader: ModuleType) -> None:
    names = ",".join(f'"name{number}":{number}' for number in range(2 * _json.MOST_NAMES))
    document = b'{%s,"n":1}' % names.encode()
    assert read(reader, {"n": LONG, "name700": LONG}, document, document) == [(1, 700), (1, 700)]


def test_texts_and_names_of_all_lengths_end_where_they_end(reader: ModuleType) -> None:
    """Compiled, characters are looked at by the sixteen, by the eight and one by one."""
    for length in range(70):
        for special, read_as in (("", ""), ("\\\\", "\\"), ("\\n", "\n"), ("\u00e9", "\u00e9"), ("\x7f", "\x7f")):
            for place in {0, length // 2, max(0, length - 1), length}:
                before, behind = "a" * place, "b" * (length - place)
                assert only(reader, TEXT, f'"{before}{special}{behind}"') == before + read_as + behind
    for length in range(1, 40):
        name = "n" * length
        documents = [b'{"%s":%d}' % (other.encode(), 5) for other in (name, name[:-1] + "m", name, name + "n")]
        assert read(reader, {name: LONG}, *documents) == [(5,), (None,), (5,), (None,)]


@pytest.mark.parametrize("control", [*range(0x20)])
def test_a_control_character_is_refused_wherever_it_stands(reader: ModuleType, control: int) -> None:
    for place in range(40):
        text = "a" * place + chr(control) + "a" * (40 - place)
        assert only(reader, TEXT, f'"{text}"') is REFUSED


@pytest.mark.parametrize("text", ["0", "-1.50", "1e37", "9" * 38, "0.0e-37", "1.5E+3", "0e50", "0." + "0" * 37 + "1"])
def test_decimals_keep_their_characters(reader: ModuleType, text: str) -> None:
    assert only(reader, DECIMAL, text) == text


@pytest.mark.parametrize(
    "text", ["1e38", "9" * 39, "1e-39", "0." + "0" * 38 + "1", "0e-39", "1e-2000000000", "1e99999999999", "1e", '"1"']
)
def test_decimals_that_arrow_would_not_check_are_refused(reader: ModuleType, text: str) -> None:
    assert only(reader, DECIMAL, text) is REFUSED
