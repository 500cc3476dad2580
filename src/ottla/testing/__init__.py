"""A broker for tests, and what this project's own tests need: disks in memory and failing ones, the reference codec.

`Broker` is imported when it is first used: this package is also that of a pytest plugin, which must cost nothing in
runs that do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.cluster import EmbeddedCluster as Cluster
    from ottla.testing.embedded import EmbeddedBroker as Broker
    from ottla.testing.errors import TestBrokerError as TestBrokerError
    from ottla.testing.errors import WaitedInVainError as WaitedInVainError
    from ottla.testing.faults.declared import FaultRule as FaultRule
    from ottla.testing.faults.requests import SeenRequest as SeenRequest
    from ottla.testing.seeds import SeedRecord as SeedRecord

__all__ = ["Broker", "Cluster", "FaultRule", "SeedRecord", "SeenRequest", "TestBrokerError", "WaitedInVainError"]

_HOME = {
    "Broker": ("ottla.testing.embedded", "EmbeddedBroker"),
    "Cluster": ("ottla.testing.cluster", "EmbeddedCluster"),
    "FaultRule": ("ottla.testing.faults.declared", "FaultRule"),
    "SeenRequest": ("ottla.testing.faults.requests", "SeenRequest"),
    "SeedRecord": ("ottla.testing.seeds", "SeedRecord"),
    "TestBrokerError": ("ottla.testing.errors", "TestBrokerError"),
    "WaitedInVainError": ("ottla.testing.errors", "WaitedInVainError"),
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(home[0]), home[1])
    return found
