"""Changed settings passed to the parts of a running broker that keep them, as Kafka's `Reconfigurable` gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.controller_events import UncleanElectionsChanged
from ottla.cluster.controller_state import UNCLEAN
from ottla.config.listeners import connections_of_hosts
from ottla.config.settings import LISTENER_LIMITS, listener_prefix
from ottla.net.listener import CreationRate
from ottla.storage.cleaning import CleanerSettings
from ottla.storage.topic_settings import TopicSettings
from ottla.storage.upkeep import StorageSettings

if TYPE_CHECKING:
    from ottla.broker.authentication import Authentication
    from ottla.broker.control.plane import ControlPlane
    from ottla.broker.quotas.replication import ReplicationQuotas
    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.broker.tls import ListenerTls
    from ottla.cluster.image import TopicImage
    from ottla.config.broker import BrokerConfig
    from ottla.config.topic import LogConfig
    from ottla.env.disk import Disk
    from ottla.net.listener import ConnectionSet
    from ottla.storage.manager import LogManager

#: File descriptors reserved for log directories, checkpoints, metadata and modules, beside connections and logs.
RESERVED_FILES = 32
#: Connections accepted even if the process may open very few files.
LEAST_CONNECTIONS = 16


def most_connections(config: BrokerConfig, disk: Disk) -> int:
    """The limit on connections: `max.connections`, or less where the process may open few files."""
    # Logs take half of the file descriptors; connections must leave some for everything else.
    most = max(LEAST_CONNECTIONS, disk.open_files() // 2 - RESERVED_FILES)
    return min(config.get_int("max.connections"), most)


class Reconfiguration:
    """Passes on the settings of the broker, and those of topics."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        connections: ConnectionSet,
        logs: LogManager,
        partitions: ReplicaManager,
        replication_quotas: ReplicationQuotas,
        control: ControlPlane,
        listener_tls: ListenerTls,
        authentication: Authentication | None,
    ) -> None:
        self._config = config
        self._disk = disk
        self._connections = connections
        self._logs = logs
        self._partitions = partitions
        self._replication_quotas = replication_quotas
        self._control = control
        self._listener_tls = listener_tls
        self._authentication = authentication
        self._allows_unclean_elections = False

    def problem(self, config: BrokerConfig) -> str | None:
        """Why clients could not connect, or log in, with these settings."""
        logins = None if self._authentication is None else self._authentication.problem(config)
        return logins or self._listener_tls.problem(config)

    def begin(self) -> None:
        """Pass on the settings with which the broker starts."""
        self._allows_unclean_elections = self._config.get_boolean(UNCLEAN)
        self._apply()

    def broker_changed(self) -> None:
        """Apply changed broker settings, which topics inherit."""
        self._apply()
        allowed = self._config.get_boolean(UNCLEAN)
        if allowed != self._allows_unclean_elections and self._control.is_controller:
            self._control.controller.post(UncleanElectionsChanged())
        self._allows_unclean_elections = allowed
        configs: dict[str, LogConfig] = {}
        for hosted in self._logs.logs():
            config = configs.get(hosted.topic)
            if config is None:
                config = configs[hosted.topic] = self._control.topic_configs.log_config(hosted.topic)
            hosted.config = config

    def topic_changed(self, topic: str, log_config: LogConfig) -> None:
        """Apply a topic's changed settings to its logs here."""
        for index in self._partitions.indexes(topic):
            hosted = self._logs.get(topic, index)
            if hosted is not None:
                hosted.config = log_config
        self.keep_settings(self._control.image.topics[topic])

    def keep_settings(self, topic: TopicImage) -> None:
        """Store the topic's settings beside its records, too."""
        hosted = self._partitions.indexes(topic.name)
        if hosted:
            self._logs.topic_settings.keep(topic.name, hosted[0], TopicSettings(topic.topic_id, topic.configs))

    def _apply(self) -> None:
        """Pass the current settings to the parts that keep them."""
        config = self._config
        self._connections.limit = most_connections(config, self._disk)
        self._connections.limit_per_host = config.get_int("max.connections.per.ip")
        overrides = config.get_string("max.connections.per.ip.overrides")
        self._connections.limits_of_hosts = connections_of_hosts(overrides)
        self._connections.creation_rate.limit = config.get_int("max.connection.creation.rate")
        for name in (each.listener_name for each in config.listeners):
            most, rate = (config.get_int(listener_prefix(name) + limit) for limit in LISTENER_LIMITS)
            self._connections.limits_of_listeners[name] = most
            self._connections.creation_rates.setdefault(name, CreationRate()).limit = rate
        self._logs.apply_settings(StorageSettings.of(config))
        self._logs.cleaner.apply_settings(CleanerSettings.of(config))
        self._replication_quotas.apply_settings(config)
        has_new_logins = self._authentication is not None and self._authentication.reload(config)
        if self._listener_tls.reload(config) or has_new_logins:
            self._control.connector.apply_settings(config)
        if self._partitions.fetchers is not None:
            self._partitions.fetchers.spread()
