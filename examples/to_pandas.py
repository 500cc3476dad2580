"""Reads a topic into a pandas data frame, by way of Arrow: no Python object per record.

pip install 'ottla[arrow]' pandas
python examples/to_pandas.py localhost:9092 clicks
"""

from __future__ import annotations

import sys

import pyarrow

from ottla.client.sync import Consumer

bootstrap, topic = sys.argv[1:]
with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
    consumer.assign(consumer.partitions_for(topic))
    tables = []
    while (table := consumer.poll_arrow(timeout_ms=1000)).num_rows:
        tables.append(table)
frame = pyarrow.concat_tables(tables).select(["partition", "offset", "key", "value"]).to_pandas()
print(frame.sort_values(["partition", "offset"]).to_string(index=False))
# The same table is one of Polars by polars.from_arrow(table).
