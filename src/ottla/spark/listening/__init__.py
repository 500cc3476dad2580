"""Streaming queries watched from outside: what Spark cannot show for a source in Python, a query listener shows.

    from ottla.spark.listening import listen

    with listen(spark, show=print):
        ...  # start queries

It works in a classic session and in one of Spark Connect, where it runs in the client's process.
"""

from __future__ import annotations

from ottla.records.extras import require_extra

require_extra("ottla.spark.listening", "spark", "pyspark", "pyarrow")

from ottla.spark.listening.listener import QueryListener, listen

__all__ = ["QueryListener", "listen"]
