"""docs/metrics.md, made from the broker's own catalogue of metrics."""

from __future__ import annotations

from ottla.broker.metrics.catalogue import BROKER_METRICS
from ottla.broker.metrics.endpoint import LIVE, PATH, READY
from ottla.broker.metrics.registry import MOST_VALUES, PROCESS_METRICS
from support.dashboard import LAG


def metrics_page(made_by: str) -> str:
    """What is served, how to switch it on, and each metric."""
    rows = [
        f"# Metrics of the broker\n\n{made_by}",
        "A broker counts as it works, in plain integers, and serves them on a port if asked to:\n",
        "```\npip install 'ottla[metrics]'\nottla serve -c ottla.metrics.port=9404\n"
        f"curl http://127.0.0.1:9404{PATH}\n```\n",
        "The format is Prometheus's text format. It is off by default, and listens on the loopback unless "
        "`ottla.metrics.host` says otherwise, since it has no login; `ottla.metrics.tls.listener` serves it by "
        "[HTTPS](security.md#tls-listeners-of-a-broker). Values are read on the event loop at each scrape, "
        "in slices between which requests are served; a disk thread writes the text.\n",
        "Where Apache Kafka has the figure, name and labels are those that Strimzi's rules for the JMX exporter make "
        "of its MBean; figures of partitions and groups have the names of kafka_exporter, too. So dashboards for Kafka "
        "show them. Each broker gives its own part: of partitions that it leads, of groups that it coordinates, of the "
        "cluster where it is the controller. Sum up over the brokers. Counters begin at 0 with the broker; a topic of "
        "which it has no partition any more takes its values along. No metric has more than "
        f"{MOST_VALUES:,} values: one that would have more is left out, "
        "the log says so, and `ottla_metrics_left_out` counts it.\n",
        "Producers and consumers give [their own figures](client-metrics.md#prometheus-and-opentelemetry) to "
        "Prometheus and OpenTelemetry.\n",
        "[docker/grafana-dashboard.json](../docker/grafana-dashboard.json) is a dashboard for Grafana, "
        "[docker/prometheus-rules.yml](../docker/prometheus-rules.yml) has "
        "[alarms](operations.md#what-to-watch) for Prometheus.\n",
        "A coordinator knows the lag of partitions that it leads or follows in sync. Where it does not know that of "
        "each partition of a topic that the group has committed, it gives neither `kafka_consumergroup_lag_sum` nor "
        "`ottla_consumergroup_lag_seconds`. In a cluster with more brokers than replicas, the lag of all partitions "
        "is:\n",
        f"```promql\n{LAG}\n```\n",
        "## Health\n",
        "The same port answers whether the broker is alive and ready, with 200 or 503 and a reason in each line:\n",
        f"| path | 200 if |\n|---|---|\n| `{LIVE}` | the event loop answers, also while the broker starts |\n"
        f"| `{READY}` | the logs are recovered and the broker has joined the cluster, a controller is known "
        "and has sent the metadata, each of its partitions has a role (aside from those that wait for a leader, and "
        "those whose log is damaged, lost or in a failed log directory), and the partitions of `__consumer_offsets` "
        "that it leads are loaded; no longer once it stops |\n",
        "So do the probes of Kubernetes: `livenessProbe` and `readinessProbe` take these paths, with "
        "`ottla.metrics.host=0.0.0.0` in a network that you trust.\n",
        "## All metrics\n",
        "| metric | kind | labels | meaning | Apache Kafka's MBean |\n|---|---|---|---|---|",
    ]
    for metric in BROKER_METRICS:
        declared = metric.declaration
        labels = ", ".join(f"`{label}`" for label in declared.labels)
        is_exporters = metric.mbean is None and declared.name.startswith("kafka_")
        source = f"`{metric.mbean}`" if metric.mbean else "kafka_exporter" if is_exporters else ""
        kind = "counter" if declared.is_counter else "gauge"
        rows.append(f"| `{declared.name}` | {kind} | {labels} | {declared.help} | {source} |")
    names = ", ".join(f"`{name}`" for name in PROCESS_METRICS)
    rows.append(f"\nOn Linux there are these of the process, too: {names}.")
    return "\n".join(rows) + "\n"
