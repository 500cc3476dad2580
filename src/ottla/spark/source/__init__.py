"""The Spark source: planning on the driver, reading in the tasks."""

from __future__ import annotations

from ottla.records.extras import require_installed

require_installed("ottla.spark", "spark", "pyspark", "pyarrow")
