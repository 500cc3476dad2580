"""The commands of `ottla acl`, which work with any Kafka cluster over the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.acl import COMMAND
from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

app = make_app("acl", "Show and change who may do what with topics, groups and the cluster (ACLs).")


class AclOperation(StrEnum):
    """Kafka's operations."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"
    CREATE_TOKENS = "create-tokens"
    DESCRIBE_TOKENS = "describe-tokens"
    ALL = "all"


Names = list[str] | None
Topics = Annotated[Names, typer.Option("--topic", "-t", metavar="NAME", help="A topic, or * for all; may be repeated.")]
Groups = Annotated[Names, typer.Option("--group", "-g", metavar="NAME", help="A group, or * for all; may be repeated.")]
TransactionalIds = Annotated[
    Names, typer.Option("--transactional-id", metavar="NAME", help="A transactional id; may be repeated.")
]
Tokens = Annotated[
    Names, typer.Option("--delegation-token", metavar="NAME", help="The owner of delegation tokens; may be repeated.")
]
Users = Annotated[
    Names, typer.Option("--user", metavar="NAME", help="A user for whom others make tokens; may be repeated.")
]
WholeCluster = Annotated[bool, typer.Option("--whole-cluster", help="The cluster itself.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="Names are prefixes of the names of resources.")]
Operations = Annotated[
    list[AclOperation] | None,
    typer.Option("--operation", "-o", help="An operation [all]; may be repeated.", case_sensitive=False),
]
Hosts = Annotated[Names, typer.Option("--host", metavar="ADDRESS", help="Only from this address; may be repeated.")]
ForProducer = Annotated[bool, typer.Option("--producer", help="What a producer needs of these topics.")]
ForConsumer = Annotated[bool, typer.Option("--consumer", help="What a consumer needs of these topics and groups.")]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer, for brokers before Kafka 2.8: idempotent writes.")
]
OfPrincipals = Annotated[
    Names, typer.Option("--principal", metavar="TYPE:NAME", help="As in User:alice; may be repeated.")
]


@cluster_command(app, "list")
def list_acls(
    shared: ClusterOptions,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    delegation_tokens: Tokens = None,
    users: Users = None,
    whole_cluster: WholeCluster = False,
    principals: OfPrincipals = None,
    match: Annotated[
        bool, typer.Option("--match", help="All ACLs that are for these names: also prefixes of them, and *.")
    ] = False,
) -> None:
    """List ACLs, all or those of some resources and principals."""
    from ottla.cli.acl.changes import filters_of, list_matching
    from ottla.ops.acls import AclResources

    resources = AclResources(topics, groups, transactional_ids, delegation_tokens, users, whole_cluster)

    async def work(cluster: Cluster) -> int:
        wanted = filters_of(resources.named(), principals or (), pattern_type="MATCH" if match else "ANY")
        return await list_matching(cluster, wanted, as_json=shared.as_json)

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def add(
    shared: ClusterOptions,
    allow: Annotated[
        Names, typer.Option("--allow", metavar="TYPE:NAME", help="A principal, as in User:alice; may be repeated.")
    ] = None,
    deny: Annotated[
        Names, typer.Option("--deny", metavar="TYPE:NAME", help="A principal that may not; may be repeated.")
    ] = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    delegation_tokens: Tokens = None,
    users: Users = None,
    whole_cluster: WholeCluster = False,
    prefixed: Prefixed = False,
    operations: Operations = None,
    hosts: Hosts = None,
    producer: ForProducer = False,
    consumer: ForConsumer = False,
    idempotent: Idempotent = False,
) -> None:
    """Add ACLs; one that is there stays.

    Ends with 0, with 1 where an ACL was not added, with 2 where it could not be done as asked.
    """
    from ottla.cli.acl.changes import Permitted, add_acls
    from ottla.ops.acls import AclResources

    resources = AclResources(topics, groups, transactional_ids, delegation_tokens, users, whole_cluster)
    permitted = Permitted(tuple(allow or ()), tuple(deny or ()), tuple(hosts or ("*",)))
    names = [each.name for each in operations or ()]

    async def work(cluster: Cluster) -> int:
        return await add_acls(
            cluster,
            permitted.acls(resources, names, prefixed, producer=producer, consumer=consumer, idempotent=idempotent),
            as_json=shared.as_json,
        )

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def remove(
    shared: ClusterOptions,
    principals: OfPrincipals = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    delegation_tokens: Tokens = None,
    users: Users = None,
    whole_cluster: WholeCluster = False,
    prefixed: Prefixed = False,
    operations: Operations = None,
    hosts: Hosts = None,
    producer: ForProducer = False,
    consumer: ForConsumer = False,
    idempotent: Idempotent = False,
    yes: Yes = False,
) -> None:
    """Remove ACLs, after they were shown.

    Ends with 0, with 1 where nothing was removed, with 2 where it could not be done as asked.
    """
    from ottla.cli.acl.changes import removals, remove_matching
    from ottla.ops.acls import AclResources

    resources = AclResources(topics, groups, transactional_ids, delegation_tokens, users, whole_cluster)
    names = [each.name for each in operations or ()]

    async def work(cluster: Cluster) -> int:
        wanted = removals(
            resources, names, prefixed, principals or (), hosts or (), producer=producer, consumer=consumer,
            idempotent=idempotent,
        )  # fmt: skip
        return await remove_matching(cluster, wanted, yes=yes, as_json=shared.as_json)

    COMMAND.run_with_cluster(shared, work)
