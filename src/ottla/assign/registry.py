"""Assignors by name: Kafka's own, by wire name or Java class name, and custom ones by dotted path.

Source: Apache Kafka 3.9, consumer setting `partition.assignment.strategy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module

from ottla.assign.assignor import PartitionAssignor, RebalanceProtocol
from ottla.assign.cooperative import CooperativeStickyAssignor
from ottla.assign.range import RangeAssignor
from ottla.assign.roundrobin import RoundRobinAssignor
from ottla.assign.sticky import StickyAssignor

BUILT_IN: dict[str, type[PartitionAssignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
"""By wire name."""

JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
BY_JAVA_CLASS = {JAVA_PACKAGE + assignor.__name__: assignor for assignor in BUILT_IN.values()}
"""So that settings of Java consumers can be taken as they are."""


class AssignorError(ValueError):
    """A name that stands for no usable assignor, or several that cannot be used together; the message says why."""


Strategy = str | type[PartitionAssignor] | PartitionAssignor
"""What stands for an assignor: a name, its class, or itself."""


def load_assignors(strategies: Sequence[Strategy]) -> list[PartitionAssignor]:
    """One assignor for each strategy, in order of preference; AssignorError where that cannot be.

    A name is a wire name (`range`), a Java class name (`org.apache.kafka.clients.consumer.RangeAssignor`) or the dotted
    path of a Python class that derives from `PartitionAssignor` (`package.module.Class`).
    """
    if not strategies:
        raise AssignorError(f"no assignor is named; {_built_in_names()}")
    by_name: dict[str, PartitionAssignor] = {}
    for strategy in strategies:
        assignor = _assignor_of(strategy)
        if assignor.name in by_name:
            raise AssignorError(
                f"the assignor name {assignor.name!r} belongs to more than one of {', '.join(map(str, strategies))}: "
                "members agree on names, so that each may be there once"
            )
        by_name[assignor.name] = assignor
    common_protocol(by_name.values())
    return list(by_name.values())


def common_protocol(assignors: Iterable[PartitionAssignor]) -> RebalanceProtocol:
    """The highest protocol that all of them support, which is the one that their member follows; AssignorError if none.

    So one bounce adds `cooperative-sticky` beside an eager assignor (the group stays eager), the next one takes the
    eager one away.
    """
    every = list(assignors)
    common = set(RebalanceProtocol).intersection(*(assignor.supported_protocols for assignor in every))
    if not common:
        named = ", ".join(
            f"{one.name} ({' and '.join(protocol.name for protocol in one.supported_protocols) or 'none'})"
            for one in every
        )
        raise AssignorError(f"the assignors support no rebalance protocol in common: {named}")
    return max(common, key=lambda protocol: protocol.value)


def _assignor_of(strategy: Strategy) -> PartitionAssignor:
    if isinstance(strategy, PartitionAssignor):
        return strategy
    if isinstance(strategy, str):
        return _load(strategy.strip())
    path = getattr(strategy, "__qualname__", repr(strategy))
    return _made(path, _checked(path, strategy))


def _load(path: str) -> PartitionAssignor:
    if built_in := BUILT_IN.get(path) or BY_JAVA_CLASS.get(path):
        return built_in()
    if "." not in path or path.startswith(JAVA_PACKAGE):
        raise AssignorError(f"no assignor is called {path!r}; {_nearest(path)}")
    module_name, _, class_name = path.rpartition(".")
    try:
        found = getattr(import_module(module_name), class_name)
    except AttributeError:
        raise AssignorError(f"the module {module_name} has no {class_name}, named as assignor {path!r}") from None
    except Exception as error:  # a custom module may raise whatever it likes
        raise AssignorError(f"the assignor {path!r} cannot be imported: {type(error).__name__}: {error}") from error
    return _made(path, _checked(path, found))


def _checked(path: str, found: object) -> type[PartitionAssignor]:
    if isinstance(found, type) and issubclass(found, PartitionAssignor):
        return found
    raise AssignorError(f"{path} is not an assignor: derive it from {PartitionAssignor.__module__}.PartitionAssignor")


def _made(path: str, assignor: type[PartitionAssignor]) -> PartitionAssignor:
    try:
        made = assignor()
    except Exception as error:
        raise AssignorError(
            f"the assignor {path!r} cannot be made without arguments: {type(error).__name__}: {error}"
        ) from error
    name = getattr(made, "name", None)
    if not (isinstance(name, str) and name):
        raise AssignorError(f"the assignor {path!r} has no name; members need one to agree on")
    return made


def _nearest(path: str) -> str:
    known = BY_JAVA_CLASS if path.startswith(JAVA_PACKAGE) else BUILT_IN
    near = get_close_matches(path.lower() if known is BUILT_IN else path, known, n=1)
    return f"did you mean {near[0]}?" if near else _built_in_names()


def _built_in_names() -> str:
    return f"there are {', '.join(BUILT_IN)}, and your own by dotted path (package.module.Class)"
