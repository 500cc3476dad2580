"""Clients of a Kafka cluster, ours or Apache's: asyncio first, with a thin synchronous shell in `ottla.client.sync`."""
