"""docker/grafana-dashboard.json, made from a table of panels."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

PANELS_A_ROW: Final = 3
WIDTH, HEIGHT = 8, 7
_REPLICAS, _CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
_TOPICS, _REQUESTS = "kafka_server_brokertopicmetrics_", "kafka_network_requestmetrics_"


class Panel(NamedTuple):
    """One diagram: its queries by the legend of their series."""

    title: str
    unit: str
    queries: dict[str, str]


#: The lag of all partitions: the end is known at the leader, the committed offset at the coordinator.
LAG: Final = (
    "sum by (consumergroup, topic) (clamp_min(max by (topic, partition) (kafka_topic_partition_current_offset) "
    "- on (topic, partition) group_right () kafka_consumergroup_current_offset, 0))"
)


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}[5m]))"


PANELS: Final = (
    Panel(
        "Brokers",
        "short",
        {
            "alive": "max(kafka_brokers)",
            "ready": "sum(ottla_ready)",
            "controllers": f"sum({_CONTROLLER}activecontrollercount)",
        },
    ),
    Panel(
        "Partitions in trouble",
        "short",
        {
            "without a leader": f"sum({_CONTROLLER}offlinepartitionscount)",
            "under min.insync.replicas": f"sum({_REPLICAS}underminisrpartitioncount)",
            "under-replicated": f"sum({_REPLICAS}underreplicatedpartitions)",
            "moving": "sum(ottla_reassigning_partitions)",
        },
    ),
    Panel(
        "Changes of ISRs",
        "ops",
        {"shrinks": _rate(f"{_REPLICAS}isrshrinks_total"), "expands": _rate(f"{_REPLICAS}isrexpands_total")},
    ),
    Panel("Records in", "cps", {"{{topic}}": _rate(f"{_TOPICS}messagesin_total", "topic")}),
    Panel("Bytes in", "Bps", {"{{topic}}": _rate(f"{_TOPICS}bytesin_total", "topic")}),
    Panel("Bytes out", "Bps", {"{{topic}}": _rate(f"{_TOPICS}bytesout_total", "topic")}),
    Panel(
        "Replication",
        "Bps",
        {
            "in": _rate(f"{_TOPICS}replicationbytesin_total"),
            "out": _rate(f"{_TOPICS}replicationbytesout_total"),
        },
    ),
    Panel("Requests", "reqps", {"{{request}}": _rate(f"{_REQUESTS}requests_total", "request")}),
    Panel(
        "Time of requests, 99th percentile",
        "ms",
        {"{{request}}": f'max by (request) ({_REQUESTS}totaltimems{{quantile="0.99"}})'},
    ),
    Panel(
        "Refused",
        "ops",
        {
            "{{topic}}: appends": _rate(f"{_TOPICS}failedproducerequests_total", "topic"),
            "{{topic}}: reads": _rate(f"{_TOPICS}failedfetchrequests_total", "topic"),
            "connections": _rate("ottla_connections_refused_total"),
        },
    ),
    Panel(
        "Lag of groups",
        "short",
        {"{{consumergroup}}: {{topic}}": LAG},
    ),
    Panel(
        "Lag of groups in time",
        "s",
        {"{{consumergroup}}: {{topic}}": "max by (consumergroup, topic) (ottla_consumergroup_lag_seconds)"},
    ),
    Panel(
        "Rebalances in 15 minutes, by cause",
        "short",
        {"{{group}}: {{cause}}": "sum by (group, cause) (increase(ottla_group_rebalance_causes_total[15m]))"},
    ),
    Panel("Longest pause in the last rebalance", "s", {"{{group}}": "max by (group) (ottla_group_last_pause_seconds)"}),
    Panel("Size on disk", "bytes", {"{{topic}}": "sum by (topic) (kafka_log_log_size)"}),
    Panel("Event-loop lag", "s", {"{{instance}}": "ottla_event_loop_lag_seconds"}),
    Panel(
        "Idle event loop",
        "percentunit",
        {"{{instance}}": "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"},
    ),
    Panel(
        "Requests that wait",
        "short",
        {"{{delayedOperation}}": "sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_purgatorysize)"},
    ),
    Panel(
        "Bytes that wait",
        "bytes",
        {
            "requests": "sum(ottla_kept_request_bytes)",
            "answers": "sum(ottla_unsent_response_bytes)",
            "for the disk": "sum(ottla_unflushed_bytes)",
        },
    ),
    Panel("Connections", "short", {"{{instance}}": "kafka_server_socket_server_metrics_connection_count"}),
    Panel(
        "Free on disk",
        "percentunit",
        {"{{instance}} {{log_directory}}": "ottla_log_directory_usable_bytes / ottla_log_directory_total_bytes"},
    ),
    Panel("Memory", "bytes", {"{{instance}}": "process_resident_memory_bytes"}),
    Panel("Processors", "short", {"{{instance}}": "rate(process_cpu_seconds_total[5m])"}),
    Panel("Open files and sockets", "short", {"{{instance}}": "process_open_fds"}),
)


def dashboard() -> str:
    """The dashboard as Grafana imports it, a panel a line."""
    panels = ",\n".join(f"  {json.dumps(_panel(number, panel))}" for number, panel in enumerate(PANELS))
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    head = {
        "title": "ottla",
        "uid": "ottla",
        "tags": ["kafka"],
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source]},
    }
    fields = "".join(f' "{name}": {json.dumps(value)},\n' for name, value in head.items())
    return f'{{\n{fields} "panels": [\n{panels}\n ]\n}}\n'


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, PANELS_A_ROW)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": "ABCDE"[place], "expr": query, "legendFormat": legend}
            for place, (legend, query) in enumerate(panel.queries.items())
        ],
    }
