"""DescribeCluster (key 60): brokers, controller and id of the cluster (KIP-700).

Versions: 1 endpoint type, brokers or controllers (KIP-919).
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 1), flexible_since=0, api_key=60)
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, since=1, default=1)  # 1 brokers, 2 controllers.


@struct
class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable_since=0, default=None)


@message(versions=(0, 1), flexible_since=0, api_key=60)
class DescribeClusterResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    endpoint_type: int = field(INT8, since=1, default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-0x80000000)
