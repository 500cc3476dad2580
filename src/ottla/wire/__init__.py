"""Kafka's wire protocol: message declarations, their codecs, error codes, framing. No I/O here."""
