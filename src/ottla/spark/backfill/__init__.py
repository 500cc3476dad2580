"""Reading topics from segment files: in parallel by segment, the rows that a read_committed consumer gets.

`options` (of `spark.read`), `directories` (where the replicas are), `extent` (from where to where one may be read),
`leaders` (what their leaders say), `plan` (the ranges), `segments` and `heads` (files that a broker changes meanwhile),
`missing` (segments that are lost), `transactions` (which were aborted), `reading` (rows), `reader` (for Spark),
`export` (to Parquet, without Spark).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.records.extras import require_installed

require_installed("ottla.spark.backfill", "spark", "pyspark", "pyarrow")


def ending_offsets(options: Mapping[str, str]) -> str:
    """Return the current end offsets of a read from segment files with these options, as Spark's JSON.

    With them as `endingOffsets` of that read and `startingOffsets` of a stream, no record is missed or read twice.
    Raises OptionError, DataLossError, SegmentError, ClientError.
    """
    import json

    from ottla.spark.backfill.options import parse_backfill_options
    from ottla.spark.backfill.plan import make_plan
    from ottla.spark.source.offsets import to_json

    return json.dumps(to_json(make_plan(parse_backfill_options(options)).ending))
