"""The Spark sink: the writers, and the options and columns they take."""

from __future__ import annotations

from ottla.records.extras import require_installed

require_installed("ottla.spark", "spark", "pyspark", "pyarrow")
