"""Each setting of the other Python clients is known here by that name, or an error tells what to set or do instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

import aiokafka
import kafka
import pytest

from ottla.client.configs import parse_admin_config, parse_consumer_config, parse_producer_config
from ottla.client.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("parse", "names"),
    [
        (parse_producer_config, kafka.KafkaProducer.DEFAULT_CONFIG),
        (parse_consumer_config, kafka.KafkaConsumer.DEFAULT_CONFIG),
        (parse_admin_config, kafka.KafkaAdminClient.DEFAULT_CONFIG),
        (parse_producer_config, inspect.signature(aiokafka.AIOKafkaProducer).parameters),
        (parse_consumer_config, inspect.signature(aiokafka.AIOKafkaConsumer).parameters),
    ],
    ids=[
        "kafka-python producer",
        "kafka-python consumer",
        "kafka-python admin",
        "aiokafka producer",
        "aiokafka consumer",
    ],
)
def test_no_name_is_only_guessed_at(parse: Callable[..., object], names: Iterable[str]) -> None:
    guessed = []
    for name in names:
        try:
            parse({name: object()}, {})
        except InvalidConfigError as error:
            guessed += [problem for problem in error.problems if "is not a known setting" in problem]
    assert guessed == []
