"""The admin client for asyncio; the sync client is `ottla.client.sync.Admin`.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("clicks", num_partitions=3)])
        print(await admin.describe_topics(["clicks"]))

Names and meanings are those of Java's Admin. A call about several items returns a result per item; if some fail
it raises PartlyFailedError with the errors and the values by item, or, if there was only one item, its
own error. Requests refused by a former controller, coordinator or leader are retried, within default.api.timeout.ms or
the call's `timeout_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ottla.client.admin.acls import AclAdmin
from ottla.client.admin.brokers import BrokerAdmin
from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.groups import GroupAdmin
from ottla.client.admin.log_dirs import LogDirAdmin
from ottla.client.admin.partitions import PartitionAdmin
from ottla.client.admin.quotas import QuotaAdmin
from ottla.client.admin.reassignments import ReassignmentAdmin
from ottla.client.admin.scram import ScramAdmin
from ottla.client.admin.tokens import TokenAdmin
from ottla.client.admin.topics import TopicAdmin
from ottla.client.admin.transactions import TransactionAdmin
from ottla.client.configs import parse_admin_config
from ottla.client.foreign_methods import ADMIN_METHODS, MethodHints, explains_arguments
from ottla.env.environment import Environment
from ottla.peer.cluster import Cluster


@explains_arguments
class Admin(
    TopicAdmin,
    ConfigAdmin,
    PartitionAdmin,
    ReassignmentAdmin,
    GroupAdmin,
    TransactionAdmin,
    BrokerAdmin,
    LogDirAdmin,
    AclAdmin,
    ScramAdmin,
    QuotaAdmin,
    TokenAdmin,
    MethodHints,
):
    """Administers a cluster; may be used by any number of tasks concurrently.

    Settings have Kafka's names, in `config` ("bootstrap.servers") or as keywords (bootstrap_servers). All
    errors are `ClientError`s. `environment` is for simulations.
    """

    _instead_of = ADMIN_METHODS

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, *, environment: Environment | None = None, **settings: Any
    ) -> None:
        self.config = parse_admin_config(config, settings)
        super().__init__(Cluster(self.config.client_settings, environment))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; calls in progress fail. Closing twice is allowed."""
        await self._cluster.close()
