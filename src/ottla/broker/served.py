"""The APIs that the broker serves: key, versions, and handler module.

Separate from the handlers so that start-up imports none of them; a test keeps the two consistent.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.authorization import Accesses
    from ottla.broker.context import RequestContext


class Handler(NamedTuple):
    """The handler of an API, and the accesses that its requests need."""

    min_version: int
    max_version: int
    handle: Callable[[RequestContext, Any], None]
    accesses: Callable[[RequestContext, Any], Accesses]


class Served(NamedTuple):
    """One API: its advertised versions, and the handler's module under `ottla.broker.handlers`."""

    min_version: int
    max_version: int
    module: str

    def load(self) -> Handler:
        """The handler, imported on first use. Raises AttributeError if it does not declare its accesses."""
        module = import_module(f"ottla.broker.handlers.{self.module}")
        return Handler(self.min_version, self.max_version, module.handle, module.accesses)


SERVED: dict[int, Served] = {
    0: Served(0, 11, "produce"),
    1: Served(0, 17, "fetch"),
    2: Served(0, 9, "list_offsets"),
    3: Served(0, 12, "metadata"),
    4: Served(0, 7, "leader_and_isr"),
    5: Served(0, 4, "stop_replica"),
    6: Served(0, 8, "update_metadata"),
    7: Served(0, 3, "controlled_shutdown"),
    8: Served(0, 9, "offset_commit"),
    9: Served(0, 9, "offset_fetch"),
    10: Served(0, 6, "find_coordinator"),
    11: Served(0, 9, "join_group"),
    12: Served(0, 4, "heartbeat"),
    13: Served(0, 5, "leave_group"),
    14: Served(0, 5, "sync_group"),
    15: Served(0, 5, "describe_groups"),
    16: Served(0, 5, "list_groups"),
    17: Served(0, 1, "sasl_handshake"),
    18: Served(0, 4, "api_versions"),
    19: Served(0, 7, "create_topics"),
    20: Served(0, 6, "delete_topics"),
    21: Served(0, 2, "delete_records"),
    22: Served(0, 5, "init_producer_id"),
    23: Served(0, 4, "offset_for_leader_epoch"),
    24: Served(0, 5, "add_partitions_to_txn"),
    25: Served(0, 4, "add_offsets_to_txn"),
    26: Served(0, 4, "end_txn"),
    27: Served(0, 1, "write_txn_markers"),
    28: Served(0, 4, "txn_offset_commit"),
    29: Served(0, 3, "describe_acls"),
    30: Served(0, 3, "create_acls"),
    31: Served(0, 3, "delete_acls"),
    32: Served(0, 4, "describe_configs"),
    33: Served(0, 2, "alter_configs"),
    34: Served(0, 2, "alter_replica_log_dirs"),
    35: Served(0, 4, "describe_log_dirs"),
    36: Served(0, 2, "sasl_authenticate"),
    37: Served(0, 3, "create_partitions"),
    38: Served(0, 3, "create_delegation_token"),
    39: Served(0, 2, "renew_delegation_token"),
    40: Served(0, 2, "expire_delegation_token"),
    41: Served(0, 3, "describe_delegation_token"),
    42: Served(0, 2, "delete_groups"),
    43: Served(0, 2, "elect_leaders"),
    44: Served(0, 1, "incremental_alter_configs"),
    45: Served(0, 0, "alter_partition_reassignments"),
    46: Served(0, 0, "list_partition_reassignments"),
    47: Served(0, 0, "offset_delete"),
    48: Served(0, 1, "describe_client_quotas"),
    49: Served(0, 1, "alter_client_quotas"),
    50: Served(0, 0, "describe_user_scram_credentials"),
    51: Served(0, 0, "alter_user_scram_credentials"),
    56: Served(0, 3, "alter_partition"),
    60: Served(0, 1, "describe_cluster"),
    61: Served(0, 0, "describe_producers"),
    64: Served(0, 0, "unregister_broker"),
    65: Served(0, 0, "describe_transactions"),
    66: Served(0, 1, "list_transactions"),
    67: Served(0, 0, "allocate_producer_ids"),
}
