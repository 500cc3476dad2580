"""Shared by the configurations of all clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, TypeVar

from ottla.client.configs.draft import ConfigDraft
from ottla.client.configs.settings import attribute_of
from ottla.client.errors import InvalidArgumentError, InvalidConfigError
from ottla.peer.settings import ConnectionSettings, parse_bootstrap_servers

_log = logging.getLogger("ottla.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of all clients; docs/client-settings.md documents them. Made by the `parse_` functions.

    Times are in milliseconds, sizes in bytes. Settings accepted only with their default (TLS, SASL) have no attribute.
    `originals` has the settings as given, by Kafka's names, for the `configure` of serializers and the like.
    """

    auto_include_jmx_reporter: bool
    bootstrap_servers: tuple[str, ...]
    client_dns_lookup: str
    client_id: str
    connections_max_idle_ms: int
    enable_metrics_push: bool
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metric_reporters: tuple[Any, ...]
    metrics_num_samples: int
    metrics_recording_level: str
    metrics_sample_window_ms: int
    receive_buffer_bytes: int
    reconnect_backoff_max_ms: int
    reconnect_backoff_ms: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    retry_backoff_ms: int
    send_buffer_bytes: int
    socket_connection_setup_timeout_max_ms: int
    socket_connection_setup_timeout_ms: int
    originals: Mapping[str, Any] = field(repr=False)

    @property
    def client_settings(self) -> ConnectionSettings:
        """The settings for `Cluster`."""
        shared = {each.name for each in fields(ConnectionSettings)}
        settings = {name: getattr(self, name) for name in shared if hasattr(self, name)}
        return ConnectionSettings(**settings | {"bootstrap_servers": ",".join(self.bootstrap_servers)} | self._limits())

    def _limits(self) -> dict[str, int]:
        """Limits of an operation with all its attempts, unless they are settings of that name."""
        return {}


C = TypeVar("C", bound=ClientConfig)


def settle_common(draft: ConfigDraft) -> None:
    """Validate and complete the settings that all clients share, in place."""
    servers = draft.values["bootstrap.servers"]
    if not servers:
        if not draft.problems:
            draft.problems.append(
                "bootstrap.servers is missing. Give it the address of a broker or more, as host:port."
            )
    else:
        try:
            parse_bootstrap_servers(",".join(servers))
        except InvalidArgumentError as error:
            draft.problems.append(f"bootstrap.servers: {error}")
    for first, longest in (
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        ("retry.backoff.ms", "retry.backoff.max.ms"),
        ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    ):
        _settle_longest(draft, first, longest)


def _settle_longest(draft: ConfigDraft, first: str, longest: str) -> None:
    """A backoff above its maximum: Java uses the maximum; if both were given, it is a contradiction."""
    values = draft.values
    if values[first] <= values[longest]:
        if first == "reconnect.backoff.ms" and draft.is_set(first) and not draft.is_set(longest):
            values[longest] = values[first]
        return
    if draft.is_set(first) and draft.is_set(longest):
        draft.problems.append(
            f"{first}={values[first]} is longer than {longest}={values[longest]}. Raise {longest} or lower {first}."
        )
    elif draft.is_set(first):
        values[longest] = values[first]
    else:
        values[first] = values[longest]


#: Client ids generated in this process, by kind of client. As in Java they are counted per process, so that a broker's
#: log distinguishes its clients; a simulation, which must give equal histories, names its clients.
_numbers: dict[str, count[int]] = {}


def settle_client_id(draft: ConfigDraft, kind: str, *, group: str | None = None, instance: str | None = None) -> None:
    """Generate a `client.id` if none is given: `producer-1`, `consumer-GROUP-1`, or `consumer-GROUP-INSTANCE`.

    Consumers of all groups are counted together. Source: `ConsumerConfig.maybeOverrideClientId`, which names a consumer
    without group `consumer-null-1`; here it is `consumer-1`.
    """
    if not draft.values["client.id"] and not draft.problems:
        last = instance if instance is not None else next(_numbers.setdefault(kind, count(1)))
        draft.values["client.id"] = "-".join(str(part) for part in (kind, group, last) if part is not None)


def made(config: type[C], draft: ConfigDraft) -> C:
    """Build the configuration, and log settings without effect. Raises InvalidConfigError with all problems."""
    if draft.problems:
        raise InvalidConfigError(draft.kind, draft.problems)
    for note in draft.notes:
        _log.warning("%s", note)
    values = {attribute_of(name): value for name, value in draft.values.items()}
    declared = {one.name for one in fields(config)} & values.keys()
    return config(originals=draft.originals, **{name: values[name] for name in declared})
