"""What tests ask of a broker, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from support.processes import ServerProcess


class RunningBroker(Protocol):
    """A broker process: `OttlaServer` and `ApacheKafka` alike."""

    port: int

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` address."""

    @property
    def log_dir(self) -> Path:
        """The folder that holds the partitions."""

    @property
    def server(self) -> ServerProcess:
        """The process."""

    def kill9(self) -> None:
        """Kill it without notice."""
