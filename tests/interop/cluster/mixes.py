"""The mixes of brokers that the tests of this folder play. The first of a mix starts first and is the controller."""

from __future__ import annotations

from typing import Any

import pytest

from support.tapped_cluster import Maker

#: The replicas of three partitions, of which each broker leads one.
ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


def mix(*makers: Maker) -> Any:
    """A parameter of a test."""
    return pytest.param(makers, id="-".join(makers))


APACHE = mix("apache", "apache", "apache")
#: Either side is the controller, and either side has the majority.
MIXES = [
    APACHE,
    mix("apache", "apache", "ottla"),
    mix("ottla", "apache", "apache"),
    mix("ottla", "ottla", "apache"),
    mix("apache", "ottla", "ottla"),
]
