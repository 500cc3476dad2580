"""The health of a cluster: what is asked of its brokers (`facts`), and what is wrong with it (`judging`).

Works with brokers of Apache Kafka as well: only public APIs are asked, and the metrics of brokers that serve ottla's.
"""
