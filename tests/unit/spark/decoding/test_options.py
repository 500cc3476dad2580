"""The options of decoders."""

from __future__ import annotations

import pickle

import pytest

from ottla.spark.decoding import decoder, parse_decoding_options
from ottla.spark.errors import OptionError


def test_values_stay_as_they_are_by_default() -> None:
    import pyarrow

    made = decoder(parse_decoding_options({"subscribe": "events"}))
    assert made.fields == pyarrow.schema([("value", pyarrow.binary())])
    values = pyarrow.array([b"x", None])
    assert made.decode(values) == [values]


def test_names_of_options_have_no_case_and_the_result_can_be_sent_to_tasks() -> None:
    options = parse_decoding_options({"VALUEFORMAT": "JSON", "valueschema": "id BIGINT", "badValueColumn": " broken "})
    assert pickle.loads(pickle.dumps(options)) == options
    assert decoder(options).fields.names == ["id", "broken", "_bad_reason"]


def test_columns_for_what_is_bad_can_be_left_out() -> None:
    options = {"valueFormat": "json", "valueSchema": "id BIGINT", "badValueColumn": "", "badReasonColumn": ""}
    assert decoder(parse_decoding_options(options)).fields.names == ["id"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"valueFormat": "xml"}, "option valueFormat: 'xml' is not one of raw, json, avro, protobuf"),
        ({"valueFormat": "json"}, "option valueSchema is missing"),
        ({"valueSchema": "id INT"}, "option valueSchema needs valueFormat=json or avro, it is raw"),
        ({"valueFormat": "json", "valueSchema": "id INT", "valueTimeZone": "Mars/Base"}, "'Mars/Base' is not a time"),
        ({"valueFormat": "json", "valueSchema": "id INT, Offset INT"}, "give valueColumn=value"),
        ({"valueFormat": "json", "valueSchema": "id INT, ID STRING"}, "another typed column"),
        ({"valueFormat": "json", "valueSchema": "_BAD_value INT"}, "the column of badValueColumn"),
        ({"valueFormat": "json", "valueSchema": "id INT", "badValueColumn": "key"}, "badValueColumn: 'key'"),
        ({"valueFormat": "json", "valueSchema": "id INT", "valueColumn": "Topic"}, "'Topic'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_cure(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        decoder(parse_decoding_options(options))
    assert said in str(caught.value)
