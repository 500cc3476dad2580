"""docs/metrics.md, made from the broker's own catalogue of metrics."""

from __future__ import annotations

from ottla.broker.metrics.catalogue import BROKER_METRICS
from ottla.broker.metrics.endpoint import PATH


def metrics_page(made_by: str) -> str:
    """What is served, how to switch it on, and each metric."""
    rows = [
        f"# Metrics of the broker\n\n{made_by}",
        "A broker counts as it works, in plain integers, and serves them on a port if asked to:\n",
        "```\npip install 'ottla[metrics]'\nottla serve -c ottla.metrics.port=9404\n"
        f"curl http://127.0.0.1:9404{PATH}\n```\n",
        "The format is Prometheus's text format. It is off by default, and listens on the loopback unless "
        "`ottla.metrics.host` says otherwise, since it has no login. Values are read on the event loop at each scrape; "
        "a disk thread writes the text, so that a scrape delays no request.\n",
        "Where Apache Kafka has the figure, its name is the one that the usual configuration of the JMX exporter makes "
        "of Kafka's MBean, so that dashboards for Kafka show it. Counters begin at 0 with the broker; a topic that is "
        "deleted takes its values along.\n",
        "| metric | kind | labels | meaning | Apache Kafka's MBean |\n|---|---|---|---|---|",
    ]
    for metric in BROKER_METRICS:
        declared = metric.declaration
        labels = ", ".join(f"`{label}`" for label in declared.labels)
        mbean = f"`{metric.mbean}`" if metric.mbean else ""
        kind = "counter" if declared.is_counter else "gauge"
        rows.append(f"| `{declared.name}` | {kind} | {labels} | {declared.help} | {mbean} |")
    return "\n".join(rows) + "\n"
