"""docs/spark-options.md: the options of the Spark source and sink beside those of Spark's own Kafka source."""

from __future__ import annotations

_HEAD = """\
# Options of the Spark source and sink

MADE_BY

Names are compared without regard to case. An unknown option, a value that cannot be, and options that
contradict each other are one error each, which names the option and the cure. [Spark](spark.md) shows them at work.

## Reading

*Spark's* says what Spark's own Kafka source has under this name. What becomes of values is an option too:
[decoded values](spark.md#decoded-values).

| option | default | for | meaning | Spark's |
|---|---|---|---|---|
"""

_REFUSED = """
Refused when reading, as by Spark's source: `kafka.enable.auto.commit`, `kafka.key.deserializer`,
`kafka.value.deserializer`, `kafka.interceptor.classes`. [TLS and SASL](security.md) take `kafka.security.protocol`,
`kafka.ssl.*` and `kafka.sasl.*`; files of TLS must be where each task runs. Spark's plans, user interface and
checkpoints do not show their secrets. In a session that `ottla.spark` did not make, `USING ottla OPTIONS (…)` shows
`kafka.ssl.keystore.key` unless `spark.sql.redaction.options.regex` matches it. Real-time mode
(`trigger(realTime=…)`) is nothing that Spark 4.2 and 4.3 offer to sources in Python.

## Writing

| option | default | meaning |
|---|---|---|
"""

_WRITING = {
    "kafka.bootstrap.servers": ("", "The cluster: `host:port[,host:port]`. Required."),
    "topic": ("", "The topic of all rows; without it each row's own, in a column `topic`."),
    "kafka.*": (
        "DEFAULTS",
        "Every setting of a producer ([client settings](client-settings.md)). `kafka.transactional.id` and, as by "
        "Spark's sink, `kafka.key.serializer` and `kafka.value.serializer` are refused.",
    ),
    "includeHeaders": ("", "Accepted; a column `headers` is written wherever there is one."),
}


def spark_options_page(made_by: str) -> str:
    """The page. The tables are those that the parsers know."""
    from ottla.spark.sink.options import DEFAULTS, OF_EVERY_STREAM, WRITE_OPTIONS
    from ottla.spark.source.option_table import BOTH, ROWS

    lines = [
        f"| `{row.name}` | {row.default} | {'' if row.reads == BOTH else row.reads} | {row.meaning} | {row.spark} |"
        for row in ROWS
    ]
    written = set(WRITE_OPTIONS) - set(OF_EVERY_STREAM)
    assert written == set(_WRITING), "describe the sink's options in tests/support/spark_options_page.py"
    defaults = ", ".join(f"`{name}={value}`" for name, value in DEFAULTS.items())
    sink = [f"| `{name}` | {default} | {meaning} |" for name, (default, meaning) in _WRITING.items()]
    head = _HEAD.replace("MADE_BY", made_by)
    return head + "\n".join(lines) + "\n" + _REFUSED + "\n".join(sink).replace("DEFAULTS", defaults) + "\n"
