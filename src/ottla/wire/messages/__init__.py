"""Declarations of Kafka's messages, one module per API, loaded on first use through `ottla.wire.apis.API`."""
