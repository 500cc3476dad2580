"""The framing of schema registries, of whole batches."""

from __future__ import annotations

import pyarrow

from ottla.spark.decoding import decoder, parse_decoding_options
from ottla.spark.decoding.framing import NOT_FRAMED, split_frames


def test_ids_and_bodies() -> None:
    values = [b"\x00\x00\x00\x00\x07x", b"\x00\xff\xff\xff\xff", b"\x01\x00\x00\x00\x07x", b"\x00\x00", b""]
    sliced = pyarrow.array([b"before", *values], pyarrow.binary()).slice(1)
    frames = split_frames(sliced)
    assert frames.ids.tolist() == [7, 2**32 - 1, NOT_FRAMED, NOT_FRAMED, NOT_FRAMED]
    assert frames.bodies.to_pylist()[:2] == [b"x", b""]


def test_json_behind_a_frame() -> None:
    options = {"valueFormat": "json", "valueSchema": "id INT", "valueFraming": "registry"}
    made = decoder(parse_decoding_options(options))
    values = [b'\x00\x00\x00\x00\x07{"id":1}', None, b'{"id":2}', b'\x00\x00\x00\x00\x08{"id":"x"}']
    ids, bad, reasons = made.decode(pyarrow.array(values, pyarrow.binary()))
    assert ids.to_pylist() == [1, None, None, None]
    assert bad.to_pylist() == [None, None, *values[2:]]
    assert reasons.to_pylist()[2:] == [
        "no framing of a schema registry: it does not begin with a byte 0 and a schema id",
        'column id: int32 is expected, not "x"',
    ]
    unframed = decoder(parse_decoding_options({"valueFormat": "json", "valueSchema": "id INT"}))
    assert "give valueFraming=registry" in unframed.decode(pyarrow.array(values[:1], pyarrow.binary()))[-1][0].as_py()
