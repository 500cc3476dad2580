"""The producer: accepts records, sends batches, returns futures.

`delegate` adds records to the batches of `accumulator`; `sender` sends those to the brokers; both facades,
`producer.Producer` (asyncio) and `ottla.client.sync.Producer` (blocking), are built on them.
"""
