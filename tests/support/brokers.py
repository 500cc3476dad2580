"""What tests ask of a broker, whoever made it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from support.processes import ServerProcess


class Bootstrapped(Protocol):
    """A broker or a cluster that clients can reach."""

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` address."""


class RunningBroker(Bootstrapped, Protocol):
    """A broker process: `OttlaServer` and `ApacheKafka` alike."""

    port: int

    @property
    def log_dir(self) -> Path:
        """The folder that holds the partitions."""

    @property
    def server(self) -> ServerProcess:
        """The process."""

    def kill9(self) -> None:
        """Kill it without notice."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where clients reach a broker or cluster that says so in its own way, such as those of `ottla.testing`."""

    bootstrap: str
