"""Kafka's record batches: their layout, checksum, compression, and the records inside; pure, no input or output."""
