"""Operations, as values: cluster status, health, replicas, moves and their plans, lag, offsets, rebalances.

All of it goes over the wire, and works with brokers of Apache Kafka as well; only the causes of rebalances are ottla's.
"""
