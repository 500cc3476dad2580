"""Settings that producers, consumers and admin clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.configs.settings import ClientRow

# fmt: off
ROWS: tuple[ClientRow, ...] = (
    (
        "auto.include.jmx.reporter", "boolean", "true", "", "low", "no_effect",
        "Java: adds a reporter for JMX. Here `metrics()` gives all metrics.",
    ),
    (
        "bootstrap.servers", "list", "", "", "high", "honoured",
        "Where to ask for the brokers of the cluster: `host:port`, separated by commas, or a list. They are tried in "
        "turn, and again whenever no known broker answers. Required.",
    ),
    (
        "client.dns.lookup", "string", "use_all_dns_ips", "[use_all_dns_ips, resolve_canonical_bootstrap_servers_only]",
        "medium", "honoured",
        "`use_all_dns_ips` tries every address of a host in turn; `resolve_canonical_bootstrap_servers_only` first "
        "replaces each bootstrap server by the canonical names of all its addresses.",
    ),
    (
        "client.id", "string", "", "", "medium", "honoured",
        "Name of this client in the logs and metrics of brokers. Empty: made of the kind of client, its group and a "
        "number.",
    ),
    (
        "enable.metrics.push", "boolean", "true", "", "low", "no_effect",
        "Sends metrics to brokers that ask for them (KIP-714); they are never sent here.",
    ),
    (
        "metadata.max.age.ms", "long", "300000", "[0,...]", "low", "honoured",
        "Metadata older than this is asked for anew, so that new partitions, topics and brokers are noticed.",
    ),
    (
        "metadata.recovery.strategy", "string", "none", "[none, rebootstrap]", "low", "no_effect",
        "What to do when no known broker answers. Here the bootstrap servers are always asked again.",
    ),
    (
        "metric.reporters", "list", "", "", "low", "no_effect",
        "Java: classes that metrics are reported to. Here `metrics()` gives all metrics.",
    ),
    (
        "metrics.num.samples", "int", "2", "[1,...]", "low", "honoured",
        "How many samples rates are computed over.",
    ),
    (
        "metrics.recording.level", "string", "INFO", "[INFO, DEBUG, TRACE]", "low", "no_effect",
        "Which metrics are kept; all that there are, always.",
    ),
    (
        "metrics.sample.window.ms", "long", "30000", "[0,...]", "low", "honoured",
        "How long one sample of a rate takes.",
    ),
    (
        "reconnect.backoff.max.ms", "long", "1000", "[0,...]", "low", "honoured",
        "The longest pause before a broker is connected to again. Where only `reconnect.backoff.ms` is given, it is "
        "the longest pause too.",
    ),
    (
        "reconnect.backoff.ms", "long", "50", "[0,...]", "low", "honoured",
        "Pause before a broker is connected to again; doubled with each failure, less or more a fifth.",
    ),
    (
        "request.timeout.ms", "int", "30000", "[0,...]", "medium", "honoured",
        "How long the answer to a request is waited for before the connection is given up and the request repeated.",
    ),
    (
        "retry.backoff.max.ms", "long", "1000", "[0,...]", "low", "honoured",
        "The longest pause before a request is repeated.",
    ),
    (
        "retry.backoff.ms", "long", "100", "[0,...]", "low", "honoured",
        "Pause before a request that failed is repeated; doubled with each failure.",
    ),
    (
        "send.buffer.bytes", "int", "131072", "[-1,...]", "medium", "honoured",
        "Size of the socket's send buffer (SO_SNDBUF). -1 leaves it to the operating system, which adapts it.",
    ),
    (
        "socket.connection.setup.timeout.max.ms", "long", "30000", "", "medium", "honoured",
        "The longest time given to a connection attempt after several that ran out of time.",
    ),
    (
        "socket.connection.setup.timeout.ms", "long", "10000", "", "medium", "honoured",
        "How long an attempt to connect may take; doubled with each attempt in a row that ran out of time.",
    ),
)
