"""Rights on resources, as a command line names them for ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.cluster.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, ResourceType

#: What a producer needs of its topics and of its transactional ids, and a consumer of its topics and groups, as in
#: Kafka's kafka-acls.
OF_PRODUCERS = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
OF_CONSUMERS = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


@dataclass(frozen=True, slots=True)
class AclResources:
    """The resources that a command names; None for those whose option it lacks."""

    topics: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    transactional_ids: Sequence[str] | None = None
    delegation_tokens: Sequence[str] | None = None
    users: Sequence[str] | None = None
    whole_cluster: bool = False

    def named(self) -> list[tuple[ResourceType, str]]:
        """Type and name of each."""
        by_type = {
            ResourceType.TOPIC: self.topics,
            ResourceType.GROUP: self.groups,
            ResourceType.CLUSTER: (CLUSTER_NAME,) if self.whole_cluster else (),
            ResourceType.TRANSACTIONAL_ID: self.transactional_ids,
            ResourceType.DELEGATION_TOKEN: self.delegation_tokens,
            ResourceType.USER: self.users,
        }
        return [(kind, name) for kind, names in by_type.items() for name in dict.fromkeys(names or ())]


class Right(NamedTuple):
    """An operation on a resource."""

    resource_type: ResourceType
    name: str
    operation: Operation


def rights(
    resources: AclResources, operations: Sequence[Operation], *, producer: bool, consumer: bool, idempotent: bool
) -> list[Right]:
    """The rights that options name, each once. Raises ValueError with a sentence for the user."""
    named = resources.named()
    if idempotent and not producer:
        raise ValueError("--idempotent goes with --producer")
    if (producer or consumer) and operations:
        raise ValueError("--producer and --consumer stand for operations; leave --operation out")
    if (producer or consumer) and not resources.topics:
        raise ValueError("--producer and --consumer need --topic")
    if consumer and not resources.groups:
        raise ValueError("--consumer needs --group")
    wanted = [each for each, is_named in ((OF_PRODUCERS, producer), (OF_CONSUMERS, consumer)) if is_named]
    found = [
        Right(kind, name, operation) for each in wanted for kind, name in named for operation in each.get(kind, ())
    ]
    if idempotent:
        found.append(Right(ResourceType.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE))
    if wanted:
        unused = {kind for kind, _ in named}.difference(*wanted)
        if unused:
            raise ValueError(f"--producer and --consumer need nothing of {_kinds(unused)}; leave it out")
        return list(dict.fromkeys(found))
    for kind, _ in named:
        wrong = set(operations).difference(SUPPORTED_OPERATIONS[kind], (Operation.ALL,))
        if wrong:
            there_are = ", ".join(sorted(each.name.lower() for each in SUPPORTED_OPERATIONS[kind]))
            raise ValueError(f"{min(wrong).name.lower()} is not for a {_kinds({kind})}; there are {there_are}, all")
    return [Right(kind, name, each) for kind, name in named for each in dict.fromkeys(operations or (Operation.ALL,))]


def _kinds(kinds: set[ResourceType]) -> str:
    return ", ".join(sorted(kind.name.lower().replace("_", " ") for kind in kinds))
