"""The configuration of a producer.

Sources: Apache Kafka 3.9's ProducerConfig and KafkaProducer, for names, defaults and the rules between settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.client.configs.base import ClientConfig, made, settle_client_id, settle_common
from ottla.client.configs.draft import ConfigDraft
from ottla.client.configs.settings import PRODUCER
from ottla.records.compression import library_problem

MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5
"""Number of batches per producer that brokers remember to detect duplicates."""
MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """All settings of a producer. `acks` is 0, 1 or -1 (all)."""

    acks: int
    batch_size: int
    buffer_memory: int
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delivery_timeout_ms: int
    enable_idempotence: bool
    interceptor_classes: tuple[Any, ...]
    key_serializer: Any
    linger_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    metadata_max_idle_ms: int
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_class: Any
    partitioner_ignore_keys: bool
    retries: int
    transaction_timeout_ms: int
    transactional_id: str | None
    value_serializer: Any

    def _limits(self) -> dict[str, int]:
        return {"default_api_timeout_ms": self.max_block_ms, "retries": MAX_INT}


def parse_producer_config(config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> ProducerConfig:
    """Parse the mapping and the keywords; both may use Kafka's names (client.id) or Python's (client_id).

    Raises InvalidConfigError with all problems.
    """
    draft = ConfigDraft(PRODUCER, config, keywords)
    settle_common(draft)
    if not draft.problems:
        _settle_idempotence(draft)
        _settle_delivery_timeout(draft)
        _settle_sizes(draft)
        _check_library(draft)
    settle_client_id(draft, "producer")
    return made(ProducerConfig, draft)


def _settle_idempotence(draft: ConfigDraft) -> None:
    """Explicit idempotence conflicts with settings that exclude it; by default they disable it."""
    values = draft.values
    is_transactional = values["transactional.id"] is not None
    if not values["enable.idempotence"]:
        if is_transactional:
            draft.problems.append(
                "transactional.id needs enable.idempotence=true. Leave enable.idempotence out, or transactional.id."
            )
        return
    in_flight = values["max.in.flight.requests.per.connection"]
    hindrances = []
    if values["retries"] == 0:
        hindrances.append("retries=0: set retries to 1 or more")
    if values["acks"] != -1:
        hindrances.append(f"acks={values['acks']}: set acks to all")
    if in_flight > MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
        hindrances.append(
            f"max.in.flight.requests.per.connection={in_flight}: set it to {MAX_IN_FLIGHT_WITH_IDEMPOTENCE} at most"
        )
    if is_transactional:
        draft.problems += [f"transactional.id is not possible with {each}, or remove it." for each in hindrances]
    elif draft.is_set("enable.idempotence"):
        draft.problems += [
            f"enable.idempotence=true is not possible with {hindrance}, or set enable.idempotence to false."
            for hindrance in hindrances
        ]
    elif hindrances:
        values["enable.idempotence"] = False


def _settle_delivery_timeout(draft: ConfigDraft) -> None:
    values = draft.values
    shortest = min(values["linger.ms"] + values["request.timeout.ms"], MAX_INT)
    if values["delivery.timeout.ms"] >= shortest:
        return
    if draft.is_set("delivery.timeout.ms"):
        draft.problems.append(
            f"delivery.timeout.ms={values['delivery.timeout.ms']} is shorter than linger.ms={values['linger.ms']} and "
            f"request.timeout.ms={values['request.timeout.ms']} together. Raise it to {shortest} or more."
        )
    else:
        values["delivery.timeout.ms"] = shortest


def _check_library(draft: ConfigDraft) -> None:
    """A missing compression library is reported at once, not with the first batch."""
    codec, problem = draft.values["compression.type"], library_problem()
    if codec != "none" and problem is not None:
        draft.problems.append(f"compression.type={codec}: {problem}.")


def _settle_sizes(draft: ConfigDraft) -> None:
    size, memory = draft.values["batch.size"], draft.values["buffer.memory"]
    if size > memory and not draft.is_set("batch.size"):
        draft.values["batch.size"] = memory
    elif size > memory:
        draft.problems.append(
            f"batch.size={size} is larger than buffer.memory={memory}, so that not even one batch would fit. "
            "Raise buffer.memory or lower batch.size."
        )
