"""Rows of a batch written to Parquet files by Spark's tasks, with pyarrow; only manifests reach the driver."""
