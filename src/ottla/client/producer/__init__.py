"""The producer: records in, batches out, futures back.

`core` takes records and puts them into the batches of `accumulator`; `sender` takes those to the brokers; the facades
`producer.Producer` (asyncio) and `ottla.client.sync.Producer` (blocking) share both.
"""
