"""The outside world as a client of brokers uses it, in one value: tests and the simulator give another."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.env.clock import Clock, SystemClock
from ottla.env.outgoing import Network, SystemNetwork
from ottla.env.randomness import Randomness


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock, network and randomness; the machine's own by default.

    On an event loop of virtual time the clock has to be that loop's: pauses are kept by the loop, deadlines by the
    clock.
    """

    clock: Clock = field(default_factory=SystemClock)
    network: Network = field(default_factory=SystemNetwork)
    randomness: Randomness = field(default_factory=Randomness)
