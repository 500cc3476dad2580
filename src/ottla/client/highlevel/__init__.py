"""The consumer of the ZooKeeper generation: a connector, its streams, and the rebalance that its group does by itself.

Names, settings and behaviour are those of Apache Kafka 0.8.2.2's `kafka.consumer`. There is no coordinator: each
consumer watches ZooKeeper, computes the whole group's assignment and claims its own part with ephemeral nodes.
"""
