"""The cluster that a source or sink is connected to, as the options `kafka.*` name it.

Every setting of our clients is taken under its Kafka name with `kafka.` before it, and checked by the clients' own
table (docs/client-settings.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.client.configs.consumer import ConsumerConfig, parse_consumer_config
from ottla.client.configs.producer import ProducerConfig, parse_producer_config
from ottla.client.configs.settings import CONSUMER, PRODUCER, SETTINGS_OF
from ottla.client.errors import InvalidConfigError
from ottla.spark.errors import OptionError
from ottla.spark.options import KAFKA_PREFIX, SparkOptions

if TYPE_CHECKING:
    from ottla.client.sync import Client

BOOTSTRAP = "kafka.bootstrap.servers"

CONNECTION_OPTIONS = (BOOTSTRAP, f"{KAFKA_PREFIX}*")

DEFAULT_CLIENT_ID = "ottla-spark"
#: Words of problems before which "acks" and the like are names of settings.
_BEFORE_SETTINGS = ("configuration", "Give", "with", "set")

#: Settings that Spark's Kafka source and sink refuse as well, and what to do instead.
NOT_SERVED = {
    "kafka.enable.auto.commit": "offsets are committed to kafka.group.id after each batch",
    "kafka.key.deserializer": "keys are binary; cast them in the query",
    "kafka.value.deserializer": "values are binary; cast them in the query",
    "kafka.key.serializer": "keys are binary or strings; cast them in the query",
    "kafka.value.serializer": "values are binary or strings; cast them in the query",
    "kafka.transactional.id": "the tasks of a batch have no transaction in common, and the sink writes at least once",
    "kafka.interceptor.classes": "interceptors would run in every task; change the rows in the query",
}


@dataclass(frozen=True)
class ConnectionOptions:
    """How to reach the cluster, reading and writing alike. `settings` are Kafka's, by their names without `kafka.`."""

    bootstrap_servers: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __hash__(self) -> int:
        return hash((self.bootstrap_servers, *sorted(self.settings.items())))

    @cached_property
    def consumer(self) -> ConsumerConfig:
        """The settings as those of a consumer. Raises InvalidConfigError."""
        return parse_consumer_config(self.all_settings, {})

    @property
    def all_settings(self) -> dict[str, str]:
        """All settings that were given, and the defaults of the source and the sink."""
        return {"client.id": DEFAULT_CLIENT_ID, **self.settings, "bootstrap.servers": self.bootstrap_servers}

    def __getstate__(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap_servers, "settings": self.settings}


def reading(connection: ConnectionOptions) -> ConnectionOptions:
    """The same cluster, with the settings that are not only a producer's."""
    settings = {name: value for name, value in connection.settings.items() if name in SETTINGS_OF[CONSUMER]}
    return ConnectionOptions(connection.bootstrap_servers, settings)


def connect(connection: ConnectionOptions, api_timeout_ms: int | None = None) -> Client:
    """A client of the cluster; the caller closes it. `api_timeout_ms` replaces `default.api.timeout.ms`."""
    from dataclasses import replace

    from ottla.client.sync import Client

    settings = connection.consumer.client_settings
    if api_timeout_ms is not None:
        settings = replace(settings, default_api_timeout_ms=api_timeout_ms)
    return Client(**{name: getattr(settings, name) for name in type(settings).__dataclass_fields__})


def parse_connection(
    options: SparkOptions, *, client_id: str | None = None, defaults: Mapping[str, str] | None = None
) -> ConnectionOptions:
    """Check the options of the connection and of reading. Raises OptionError with all problems.

    `client_id` is the `client.id` where none is given; `defaults` are those of the reader that differ from Kafka's.
    """
    made = _connection(options, client_id)
    _check(parse_consumer_config, made, defaults or {})
    return made


def parse_producer_connection(options: SparkOptions, defaults: Mapping[str, str]) -> ConnectionOptions:
    """Check the options of the connection and of a producer. Raises OptionError with all problems."""
    made = _connection(options, None)
    made = ConnectionOptions(made.bootstrap_servers, {**defaults, **made.settings})
    _check(parse_producer_config, made, defaults)
    return made


def _connection(options: SparkOptions, client_id: str | None) -> ConnectionOptions:
    servers = (options.get(BOOTSTRAP) or "").strip()
    if not servers:
        raise OptionError(f"option {BOOTSTRAP} is missing; give it as host:port[,host:port]")
    settings = options.kafka_settings()
    del settings["bootstrap.servers"]
    if client_id is not None:
        settings.setdefault("client.id", client_id)
    return ConnectionOptions(servers, settings)


def _check(
    parse: Callable[..., ConsumerConfig | ProducerConfig], connection: ConnectionOptions, defaults: Mapping[str, str]
) -> None:
    try:
        parse(connection.all_settings, {})
    except InvalidConfigError as error:
        problems = (_by_options(problem, connection, defaults) for problem in error.problems)
        raise OptionError("; ".join(problems)) from None


def _by_options(problem: str, connection: ConnectionOptions, defaults: Mapping[str, str]) -> str:
    """The problem with settings by the names that they have as options, and with their defaults here."""
    for name, value in defaults.items():
        if re.search(rf"configuration {re.escape(name)}:", problem):
            problem = re.sub(r"the default is [^.]+", f"the default is {value}", problem)
    names = {*connection.settings, *SETTINGS_OF[CONSUMER], *SETTINGS_OF[PRODUCER]}
    found = re.sub(
        r"(?<![\w.])[a-z]+(?:\.[a-z]+)+(?![\w.]*\w)",
        lambda name: f"{KAFKA_PREFIX}{name[0]}" if name[0] in names else name[0],
        problem,
    )
    for name in connection.settings:
        if "." not in name:  # acks, retries
            place = "|".join(("^", *(f"(?<={word} )" for word in _BEFORE_SETTINGS)))
            found = re.sub(rf"(?:{place}){name}\b", f"{KAFKA_PREFIX}{name}", found)
    return f"option {found}" if found.startswith(KAFKA_PREFIX) else found
