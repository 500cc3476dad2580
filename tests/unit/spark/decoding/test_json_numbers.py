"""JSON's numbers in columns of each type: what Spark 4.3 gives, whichever of the readers takes the document."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow
import pytest

from ottla.spark.decoding import decoder, json_batches, json_columns, parse_decoding_options
from ottla.spark.decoding.halving import UnreadableError

pytestmark = pytest.mark.spec("D1")

BAD = object()
THIRTY_ZEROS = "1" + "0" * 30
INF = math.inf


@pytest.fixture(params=["compiled", "without", "one-by-one"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    """Reads a number between two good documents by the reader that is named, or by those to which it refuses them."""
    if request.param == "compiled" and not json_columns.COMPILED:
        pytest.skip("not compiled here")
    if request.param == "without":
        monkeypatch.setattr(json_batches, "COMPILED", False)
    if request.param == "one-by-one":
        monkeypatch.setattr(json_batches.JsonBatches, "_batch", _unreadable)

    def one(kind: str, text: str) -> Any:
        options = {"valueFormat": "json", "valueSchema": f"x {kind}, y BIGINT"}
        made = decoder(parse_decoding_options(options))
        documents = [b'{"x":null,"y":1}', b'{"x":%s,"y":2}' % text.encode(), b'{"x":null,"y":3}']
        columns = made.decode(pyarrow.array(documents, pyarrow.binary()))
        first, row, last = pyarrow.table(columns, schema=made.fields).to_pylist()
        neighbour = {"x": None, "_bad_value": None, "_bad_reason": None}
        assert (first, last, row["y"]) == (neighbour | {"y": 1}, neighbour | {"y": 3}, 2)
        if row["_bad_reason"] is None:
            return row["x"]
        assert (row["x"], row["_bad_value"]) == (None, documents[1])
        assert row["_bad_reason"].startswith("column x: ")
        return BAD

    return one


def _unreadable(*_: object) -> None:
    raise UnreadableError


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        # Whole numbers up to the type's ends; JsonParser.getByteValue takes unsigned bytes, too.
        ("TINYINT", "-128", -128), ("TINYINT", "-129", BAD), ("TINYINT", "255", -1), ("TINYINT", "256", BAD),
        ("SMALLINT", "32767", 32767), ("SMALLINT", "-32768", -32768), ("SMALLINT", "32768", BAD),
        ("INT", "2147483647", 2**31 - 1), ("INT", "2147483648", BAD), ("INT", "-2147483649", BAD),
        ("BIGINT", "9223372036854775807", 2**63 - 1), ("BIGINT", "-9223372036854775808", -(2**63)),
        ("BIGINT", "9223372036854775808", BAD), ("BIGINT", THIRTY_ZEROS, BAD),
        ("BIGINT", "-0", 0),
        # A point or an exponent is no whole number, whatever its value.
        ("INT", "1.0", BAD), ("INT", "1e2", BAD), ("BIGINT", "0e0", BAD), ("BIGINT", '"1"', BAD), ("INT", "NaN", BAD),
        ("INT", "true", BAD),
        # No number is anything else than a number or a text.
        ("BOOLEAN", "1", BAD), ("DATE", "1", BAD), ("BINARY", "1", BAD), ("TIMESTAMP_NTZ", "1", BAD),
        ("TIMESTAMP", "1.5", BAD), ("STRING", "-0", "0"), ("STRING", "1E400", '"Infinity"'), ("STRING", "1e2", "100.0"),
    ],
)  # fmt: skip
def test_whole_numbers_and_what_takes_none(
    read: Callable[[str, str], Any], kind: str, text: str, expected: object
) -> None:
    assert read(kind, text) == expected


@pytest.mark.parametrize(
    ("text", "double", "single"),
    [
        ("1", 1.0, 1.0), ("15e-1", 1.5, 1.5), ("1E+2", 100.0, 100.0), ("-0.0", -0.0, -0.0),
        ("16777217", 16777217.0, 16777216.0),
        ("1e39", 1e39, INF), ("-1e309", -INF, -INF), ("1e2147483648", INF, INF),
        ("1e-50", 1e-50, 0.0), ("1e-400", 0.0, 0.0), ("0e99999999999", 0.0, 0.0),
        # Rounded once: by way of a double this float would be the one below.
        ("1.00000005960464477540", 1.0000000596046448, 1.0000001192092896),
        ('"Infinity"', INF, INF), ('"-INF"', -INF, -INF), ("Infinity", INF, INF), ("NaN", math.nan, math.nan),
        ('"NaN"', math.nan, math.nan), ('"1.5"', BAD, BAD), ('"Nan"', BAD, BAD), ("false", BAD, BAD),
    ],
)  # fmt: skip
def test_floats(read: Callable[[str, str], Any], text: str, double: Any, single: Any) -> None:
    for kind, expected in (("DOUBLE", double), ("FLOAT", single)):
        found = read(kind, text)
        if expected is BAD:
            assert found is BAD
        else:
            assert math.isnan(expected) == math.isnan(found)
            assert math.isnan(expected) or struct.pack("d", found) == struct.pack("d", expected)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        # As many digits before the point as the type has.
        ("DECIMAL(38,18)", THIRTY_ZEROS, BAD), ("DECIMAL(38,18)", f"-{THIRTY_ZEROS}", BAD),
        ("DECIMAL(38,18)", "1e30", BAD), ("DECIMAL(38,18)", "1" + "0" * 45, BAD), ("DECIMAL(38,18)", "1e20", BAD),
        ("DECIMAL(38,18)", "1e19", Decimal(10**19)),
        ("DECIMAL(38,18)", "99999999999999999999.5", Decimal("99999999999999999999.5")),
        ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)), ("DECIMAL(38,0)", "-" + "9" * 38, Decimal("-" + "9" * 38)),
        ("DECIMAL(38,0)", "9" * 39, BAD), ("DECIMAL(38,0)", "1e38", BAD),
        ("DECIMAL(38,0)", "5e37", Decimal(5 * 10**37)),
        ("DECIMAL(38,38)", "0.5", Decimal("0.5")), ("DECIMAL(38,38)", "1", BAD),
        ("DECIMAL(38,38)", "1e-38", Decimal("1e-38")),
        ("DECIMAL(6,2)", "9999.99", Decimal("9999.99")), ("DECIMAL(6,2)", "12345", BAD),
        ("DECIMAL(6,2)", "-10000", BAD),
        ("DECIMAL(1,0)", "9", Decimal(9)), ("DECIMAL(1,0)", "10", BAD),
        # Rounded half up, and then in need of one digit more.
        ("DECIMAL(6,2)", "1.005", Decimal("1.01")), ("DECIMAL(6,2)", "-1.015", Decimal("-1.02")),
        ("DECIMAL(6,2)", "9999.994", Decimal("9999.99")), ("DECIMAL(6,2)", "9999.995", BAD),
        ("DECIMAL(1,0)", "9.5", BAD),
        ("DECIMAL(38,18)", "5e-19", Decimal("1e-18")), ("DECIMAL(38,18)", "4e-19", Decimal(0)),
        ("DECIMAL(38,18)", "0." + "0" * 80 + "1", Decimal(0)), ("DECIMAL(38,18)", "1." + "0" * 80 + "1", Decimal(1)),
        # Exponents of any size, also those that pyarrow's reader ends the process for.
        ("DECIMAL(6,2)", "1.5e1", Decimal(15)), ("DECIMAL(6,2)", "15E-1", Decimal("1.5")),
        ("DECIMAL(6,2)", "1e+2", Decimal(100)),
        ("DECIMAL(38,18)", "1e-77", Decimal(0)), ("DECIMAL(38,18)", "1e-400", Decimal(0)),
        ("DECIMAL(38,18)", "1e-99999", Decimal(0)),
        ("DECIMAL(38,18)", "1e400", BAD), ("DECIMAL(38,18)", "1e99999", BAD), ("DECIMAL(38,18)", "1e99999999999", BAD),
        ("DECIMAL(38,18)", "1e-2000000000", BAD), ("DECIMAL(38,18)", "1e-99999999999", BAD),
        # Nothing, however it is written; Java's exponents have 32 bits.
        ("DECIMAL(6,2)", "-0", Decimal(0)), ("DECIMAL(6,2)", "-0.000", Decimal(0)),
        ("DECIMAL(6,2)", "0e50", Decimal(0)),
        ("DECIMAL(6,2)", "0E-50", Decimal(0)), ("DECIMAL(6,2)", "0e-2000000000", Decimal(0)),
        ("DECIMAL(6,2)", "0e99999999999", BAD),
        # Numbers in texts, without NaN.
        ("DECIMAL(6,2)", '"1.5"', Decimal("1.5")), ("DECIMAL(6,2)", '"1e2"', Decimal(100)),
        ("DECIMAL(38,18)", '"1e30"', BAD),
        ("DECIMAL(6,2)", '"1,234.5"', Decimal("1234.5")), ("DECIMAL(6,2)", '"+5"', Decimal(5)),
        ("DECIMAL(6,2)", '""', BAD),
        ("DECIMAL(6,2)", '"NaN"', BAD), ("DECIMAL(6,2)", "NaN", BAD), ("DECIMAL(6,2)", "Infinity", BAD),
        ("DECIMAL(6,2)", "true", BAD),
    ],
)  # fmt: skip
def test_decimals(read: Callable[[str, str], Any], kind: str, text: str, expected: object) -> None:
    assert read(kind, text) == expected


@pytest.mark.parametrize("text", ["+1", "01", ".5", "5.", "1e", "1e+", "-", "0x10", "1_000"])
@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE", "DECIMAL(6,2)", "STRING"])
def test_texts_that_are_no_numbers_of_json(kind: str, text: str) -> None:
    options = {"valueFormat": "json", "valueSchema": f"x {kind}"}
    columns = decoder(parse_decoding_options(options)).decode(pyarrow.array([b'{"x":%s}' % text.encode()]))
    assert columns[0].to_pylist() == [None]
    assert columns[-1][0].as_py().startswith("not JSON: ")


def test_a_wild_number_in_a_nested_decimal_or_another_column_leaves_the_process_alive() -> None:
    for ddl in ("x STRUCT<d: ARRAY<DECIMAL(6,2)>>", "y DECIMAL(6,2), x STRUCT<d: ARRAY<DOUBLE>>", "y DECIMAL(6,2)"):
        made = decoder(parse_decoding_options({"valueFormat": "json", "valueSchema": ddl}))
        # The second name makes the compiled reader leave the batch to pyarrow's.
        values = pyarrow.array([b'{"x":{"d":[1, -1e-2000000000]},"z":1,"x":{"d":[2,0.1e-2000000000]}}'] * 3)
        assert len(made.decode(values)[0]) == 3


def test_the_usual_decimals_are_read_in_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("read one by one")

    monkeypatch.setattr(json_batches.JsonBatches, "_one_by_one", refused)
    ddl = "p DECIMAL(38,18), q DECIMAL(6,2), d DOUBLE, s STRING"
    documents = [
        b'{"p":%d.000000000000000001,"q":-%d.05,"d":1.5e-05,"s":"7f1e-55"}' % (10**19 + each, each)
        for each in range(50)
    ]
    for compiled in {False, json_columns.COMPILED}:
        monkeypatch.setattr(json_batches, "COMPILED", compiled)
        columns = decoder(parse_decoding_options({"valueFormat": "json", "valueSchema": ddl})).decode(
            pyarrow.array(documents, pyarrow.binary())
        )
        assert columns[0].to_pylist() == [Decimal(f"{10**19 + each}.000000000000000001") for each in range(50)]
        assert columns[1].to_pylist() == [Decimal(f"-{each}.05") for each in range(50)]
