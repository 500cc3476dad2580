"""The two clusters of a mirror, and clients of them with the settings that the pipeline's file gives each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.client.configs.admin import parse_admin_config
from ottla.client.configs.consumer import parse_consumer_config
from ottla.client.configs.producer import parse_producer_config
from ottla.client.configs.settings import ADMIN, CONSUMER, PRODUCER, SETTINGS_OF
from ottla.client.errors import InvalidConfigError
from ottla.spark.connection import BOOTSTRAP, DEFAULT_CLIENT_ID, ConnectionOptions, connect
from ottla.spark.options import KAFKA_PREFIX
from ottla.spark.pipelines.errors import PipelineSettingsError

if TYPE_CHECKING:
    from ottla.client.sync import Admin, Client, Producer
    from ottla.spark.pipelines.settings.model import MirrorSettings

_OWN = ("bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset")
"""Settings that other keys of the file stand for."""

_MAX_INT = str((1 << 31) - 1)
DEFAULTS = {
    # Records of one partition keep their order, whatever is tried again, and none is dropped.
    "acks": "all",
    "enable.idempotence": "true",
    "delivery.timeout.ms": _MAX_INT,
    "max.block.ms": _MAX_INT,
    # A record may be as large as the source has it: its batch was compressed there.
    "max.request.size": str(64 * 1024 * 1024),
    "buffer.memory": str(64 * 1024 * 1024),
    "batch.size": str(256 * 1024),
    "linger.ms": "5",
}
"""Settings of the producer that copies records."""

_FIXED = ("acks", "enable.idempotence")


@dataclass(frozen=True)
class MirrorEnd:
    """One of the clusters. `settings` are of any of our clients, by Kafka's names."""

    bootstrap_servers: str
    settings: Mapping[str, str] = field(repr=False)

    def client(self, api_timeout_ms: int | None = None) -> Client:
        """For metadata, offsets and records; the caller closes it."""
        return connect(ConnectionOptions(self.bootstrap_servers, self._of(CONSUMER)), api_timeout_ms)

    def admin(self) -> Admin:
        """For topics, settings and groups; the caller closes it."""
        from ottla.client.sync import Admin

        return Admin(self._with_address(ADMIN))

    def producer(self, defaults: Mapping[str, str] | None = None) -> Producer[bytes, bytes]:
        """The caller closes it."""
        from ottla.client.sync import Producer

        return Producer({**(defaults or {}), **self._with_address(PRODUCER)})

    def reading_options(self) -> dict[str, str]:
        """As options of `format("ottla")`."""
        options = {f"{KAFKA_PREFIX}{name}": value for name, value in self._of(CONSUMER).items()}
        return {BOOTSTRAP: self.bootstrap_servers, **options}

    def check(self, key: str) -> None:
        """Raises PipelineSettingsError for settings under `key` that no client knows or takes."""
        known = {name for of_kind in SETTINGS_OF.values() for name in of_kind}
        for name in self.settings:
            if name in _OWN:
                raise PipelineSettingsError(f"{key}: {name} is not given here; the pipeline sets it by its own keys")
            if name not in known:
                raise PipelineSettingsError(f"{key}: no client has a setting {name!r}; see docs/client-settings.md")
            if name in _FIXED and self.settings[name] != DEFAULTS[name]:
                raise PipelineSettingsError(
                    f"{key}: a mirror needs {name}={DEFAULTS[name]}, so that records keep their order and none is "
                    "lost; leave it out"
                )
        try:
            parse_consumer_config(self._with_address(CONSUMER), {})
            parse_admin_config(self._with_address(ADMIN), {})
            parse_producer_config({**DEFAULTS, **self._with_address(PRODUCER)}, {})
        except InvalidConfigError as error:
            raise PipelineSettingsError(f"{key}: {'; '.join(error.problems)}") from None

    def _of(self, kind: str) -> dict[str, str]:
        return {name: value for name, value in self.settings.items() if name in SETTINGS_OF[kind]}

    def _with_address(self, kind: str) -> dict[str, Any]:
        return {"client.id": DEFAULT_CLIENT_ID, **self._of(kind), "bootstrap.servers": self.bootstrap_servers}


def source_of(mirror: MirrorSettings) -> MirrorEnd:
    """The cluster that records come from."""
    return MirrorEnd(mirror.source_bootstrap_servers, dict(mirror.source_settings))


def target_of(mirror: MirrorSettings) -> MirrorEnd:
    """The cluster that they go to."""
    return MirrorEnd(mirror.target_bootstrap_servers, dict(mirror.target_settings))


def check_two_clusters(mirror: MirrorSettings, timeout_ms: int | None = None) -> None:
    """Raises PipelineSettingsError where both ends are one cluster: a mirror would copy its own copies without end.

    Raises ClientError where one does not answer.
    """
    found = []
    for end in (source_of(mirror), target_of(mirror)):
        with end.admin() as admin:
            cluster = admin.describe_cluster(timeout_ms=timeout_ms)
            # The id alone is not enough: a cluster made from a copy of another's folder has the same.
            found.append((cluster.cluster_id, {(node.host, node.port) for node in cluster.nodes}))
    if found[0] == found[1]:
        raise PipelineSettingsError(
            "source_bootstrap_servers and target_bootstrap_servers are of the same cluster, so that copies would be "
            "copied again without end; correct one of them"
        )
