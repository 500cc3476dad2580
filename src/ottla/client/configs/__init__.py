"""Configurations of producers, consumers and admin clients: all settings of Apache Kafka, typed and validated."""

from ottla.client.configs.admin import AdminConfig, parse_admin_config
from ottla.client.configs.base import ClientConfig
from ottla.client.configs.consumer import ConsumerConfig, parse_consumer_config
from ottla.client.configs.producer import ProducerConfig, parse_producer_config

__all__ = [
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "ProducerConfig",
    "parse_admin_config",
    "parse_consumer_config",
    "parse_producer_config",
]
