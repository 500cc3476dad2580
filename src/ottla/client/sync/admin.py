"""The sync admin client: that of `ottla.client`, run in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.admin.admin import Admin as AsyncAdmin
from ottla.client.foreign_methods import ADMIN_METHODS, MethodHints, explains_arguments
from ottla.client.loop_thread import LoopThread
from ottla.client.sync.blocking import SyncClient, blocking


@explains_arguments
class Admin(SyncClient, MethodHints):
    """Administers a cluster; may be used by any number of threads concurrently.

    Settings, methods and errors are those of `ottla.client.Admin`.
    """

    _instead_of = ADMIN_METHODS

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._async = AsyncAdmin(config, **settings)
        self._thread = LoopThread(f"{self._async.config.client_id}-admin", self._async.close)

    create_topics = blocking(AsyncAdmin.create_topics)
    create_topic = blocking(AsyncAdmin.create_topic)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    incremental_alter_configs = blocking(AsyncAdmin.incremental_alter_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    delete_records = blocking(AsyncAdmin.delete_records)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    remove_members_from_group = blocking(AsyncAdmin.remove_members_from_group)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = blocking(AsyncAdmin.alter_replica_log_dirs)
    describe_replica_log_dirs = blocking(AsyncAdmin.describe_replica_log_dirs)
    describe_user_scram_credentials = blocking(AsyncAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(AsyncAdmin.alter_user_scram_credentials)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_token = blocking(AsyncAdmin.describe_delegation_token)
    unregister_broker = blocking(AsyncAdmin.unregister_broker)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
