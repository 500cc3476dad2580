"""What it costs to make typed columns of JSON events, by the reader: the compiled one, and pyarrow's.

    ./run bench json_columns

The events are those of `bench/spark.py`: 1 KiB each, of which about a half is wanted; 14 columns. One process, batches
of 4,000, processor time; the fastest of five rounds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import pyarrow
from spark import _events
from spark_queries import EVENT_SCHEMA

from ottla.spark.decoding import decoder, parse_decoding_options
from ottla.spark.decoding.json_batches import JsonBatches

EVENTS = 40_000
BATCH = 4_000
ROUNDS = 5


def batches() -> list[pyarrow.BinaryArray]:
    """The events as tasks get them."""
    values = pyarrow.chunked_array([chunk for table in _events(EVENTS) for chunk in table["value"].chunks])
    return [values.slice(start, BATCH).combine_chunks() for start in range(0, EVENTS, BATCH)]


def cost_us(read: Callable[[Any], object], columns: list[pyarrow.BinaryArray]) -> float:
    """Processor time of an event."""
    fastest_s = float("inf")
    for _ in range(ROUNDS):
        began_s = time.process_time()
        for batch in columns:
            read(batch)
        fastest_s = min(fastest_s, time.process_time() - began_s)
    return fastest_s / EVENTS * 1e6


def main() -> None:
    """Measure both."""
    columns = batches()
    schema = decoder(parse_decoding_options({"valueFormat": "json", "valueSchema": EVENT_SCHEMA})).fields
    reader = JsonBatches(pyarrow.schema([each for each in schema if not each.name.startswith("_bad")]), "UTC")
    print("| reader | CPU of an event of 1 KiB |")
    print("|---|--:|")
    for name, read in (("compiled", reader._of_compiled), ("pyarrow's", reader._of_pyarrow), ("whole", reader.decode)):
        print(f"| {name} | {cost_us(read, columns):.2f} µs |")


if __name__ == "__main__":
    main()
