"""Configurations of producers, consumers and admin clients: all settings of Apache Kafka, typed and validated."""

from ottla.client.configs.admin import AdminConfig as AdminConfig
from ottla.client.configs.admin import parse_admin_config as parse_admin_config
from ottla.client.configs.base import ClientConfig as ClientConfig
from ottla.client.configs.consumer import ConsumerConfig as ConsumerConfig
from ottla.client.configs.consumer import parse_consumer_config as parse_consumer_config
from ottla.client.configs.producer import ProducerConfig as ProducerConfig
from ottla.client.configs.producer import parse_producer_config as parse_producer_config
