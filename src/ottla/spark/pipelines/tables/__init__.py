"""Tables that take each batch of a query exactly once: plain Parquet, Delta, Iceberg; no jar."""
