"""A topic as a data frame of pandas or Polars, by way of Arrow: no Python object per record.

pip install 'ottla[arrow]' pandas polars
"""

from __future__ import annotations

import pandas
import polars
import pyarrow

from ottla.client.sync import Consumer


def read(bootstrap_servers: str, topic: str) -> pyarrow.Table:
    """All records that a topic has now, partition by partition."""
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        ends = consumer.end_offsets(partitions)
        tables = [consumer.poll_arrow(timeout_ms=0)]
        while any(consumer.position(each) < end for each, end in ends.items()):
            tables.append(consumer.poll_arrow(timeout_ms=1000))
    table = pyarrow.concat_tables(tables).select(["partition", "offset", "key", "value"])
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")])


def to_pandas(bootstrap_servers: str, topic: str) -> pandas.DataFrame:
    """The topic as a data frame of pandas."""
    return read(bootstrap_servers, topic).to_pandas()


def to_polars(bootstrap_servers: str, topic: str) -> polars.DataFrame:
    """The topic as a data frame of Polars."""
    frame = polars.from_arrow(read(bootstrap_servers, topic))
    assert isinstance(frame, polars.DataFrame)
    return frame
