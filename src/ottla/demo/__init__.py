"""The demonstration: events through a broker, three Spark pipelines and a consumer group that keeps changing."""
