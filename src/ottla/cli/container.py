"""`ottla container`: a broker in a container, with the variables of Apache Kafka's image as its settings."""

from __future__ import annotations

import os
from typing import Final

from ottla.cli.command import EXIT_FAILED, Command
from ottla.cli.serve import prepare_process, process_start_s, run_in_loop, serve_config

COMMAND = Command("ottla container")

#: What Testcontainers' modules for Kafka wait for in the log: Java and Go; Python with ZooKeeper; Python with KRaft.
#: Each stands in one line, since Java's module counts lines.
AWAITED: Final = (
    "Testcontainers waits for: Transitioning from RECOVERY to RUNNING, "
    "[KafkaServer id={broker_id}] started, Kafka Server started"
)


def run() -> int:
    """Run the broker; returns the exit code."""
    from ottla.config.broker import ConfigRefusal, parse_broker_config
    from ottla.config.container import ContainerRefusal, container_settings

    started_s = process_start_s()
    prepare_process()
    made = container_settings(os.environ)
    if isinstance(made, ContainerRefusal):
        COMMAND.report(made.message)
        return EXIT_FAILED
    config = parse_broker_config(made.settings)
    if isinstance(config, ConfigRefusal):
        for problem in config.problems:
            COMMAND.report(problem)
        return EXIT_FAILED
    for note in [*made.notes, *(f"warning: {warning}" for warning in config.warnings)]:
        COMMAND.report(note)
    return run_in_loop(serve_config(config, started_s, COMMAND, AWAITED))
