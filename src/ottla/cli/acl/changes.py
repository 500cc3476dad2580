"""How ACLs are listed, added and removed: filters and ACLs of the options, what is shown, and what is confirmed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.cli.acl import COMMAND
from ottla.cli.command import NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.terminal import Cell, Column, Style, Terminal, count, write_json
from ottla.client.admin.acls import AclAdmin
from ottla.client.admin.model import AclBinding, AclBindingFilter
from ottla.client.errors import BrokerError, ClientError, PartlyFailedError
from ottla.cluster.acls import Operation, ResourceType
from ottla.ops.acls import AclResources, Right, rights
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode

_ACLS: tuple[Column[AclBinding], ...] = (
    Column("RESOURCE", lambda acl: acl.resource_type.lower().replace("_", " ")),
    Column("NAME", lambda acl: Cell(_name(acl), Style.NAME), may_shrink=True),
    Column("PRINCIPAL", lambda acl: acl.principal, may_shrink=True),
    Column("MAY", lambda acl: Cell("yes") if acl.permission == "ALLOW" else Cell("no", Style.BAD)),
    Column("OPERATION", lambda acl: acl.operation.lower().replace("_", "-")),
    Column("HOST", lambda acl: acl.host, may_shrink=True),
)


def _name(acl: AclBinding) -> str:
    return f"{acl.name}…" if acl.pattern_type == "PREFIXED" else acl.name


@dataclass(frozen=True, slots=True)
class Permitted:
    """The principals to which ACLs allow or deny something, and their hosts."""

    allow: tuple[str, ...]
    deny: tuple[str, ...]
    hosts: tuple[str, ...]

    def acls(
        self,
        resources: AclResources,
        operations: Sequence[str],
        prefixed: bool,
        *,
        producer: bool,
        consumer: bool,
        idempotent: bool,
    ) -> list[AclBinding]:
        """The ACLs. Raises CommandError."""
        if not self.allow and not self.deny:
            raise CommandError("say who: --allow User:alice or --deny User:alice")
        wanted = _rights(resources, operations, producer, consumer, idempotent)
        if not wanted:
            raise CommandError("say of what: --topic, --group, --transactional-id or --whole-cluster")
        who = [(each, "ALLOW") for each in _principals(self.allow)] + [
            (each, "DENY") for each in _principals(self.deny)
        ]
        return [
            AclBinding(
                right.resource_type.name,
                right.name,
                principal,
                right.operation.name,
                permission,
                host,
                _pattern_type(right, prefixed),
            )
            for right in wanted
            for principal, permission in who
            for host in self.hosts
        ]


def filters_of(
    resources: Sequence[tuple[ResourceType, str]], principals: Sequence[str], *, pattern_type: str
) -> list[AclBindingFilter]:
    """Filters for the ACLs of these resources and principals; where none are named, of all. Raises CommandError."""
    return [
        AclBindingFilter("ANY" if kind is None else kind.name, name, principal, pattern_type=pattern_type)
        for kind, name in resources or ((None, None),)
        for principal in _principals(principals) or (None,)
    ]


def removals(
    resources: AclResources,
    operations: Sequence[str],
    prefixed: bool,
    principals: Sequence[str],
    hosts: Sequence[str],
    *,
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> list[AclBindingFilter]:
    """Filters for the ACLs to remove. Raises CommandError."""
    wanted: Sequence[Right | None] = _rights(resources, operations, producer, consumer, idempotent)
    named = operations or producer or consumer
    if not wanted and not principals:
        raise CommandError("say which: by --topic, --group, --transactional-id, --whole-cluster or --principal")
    return list(
        dict.fromkeys(
            AclBindingFilter(
                "ANY" if right is None else right.resource_type.name,
                None if right is None else right.name,
                principal,
                right.operation.name if right is not None and named else "ANY",
                host=host,
                pattern_type="ANY" if right is None else _pattern_type(right, prefixed),
            )
            for right in wanted or (None,)
            for principal in _principals(principals) or (None,)
            for host in hosts or (None,)
        )
    )


def _rights(
    resources: AclResources, operations: Sequence[str], producer: bool, consumer: bool, idempotent: bool
) -> list[Right]:
    try:
        return rights(
            resources,
            [Operation[each] for each in operations],
            producer=producer,
            consumer=consumer,
            idempotent=idempotent,
        )
    except ValueError as error:
        raise CommandError(str(error)) from error


def _pattern_type(right: Right, prefixed: bool) -> str:
    return "PREFIXED" if prefixed and right.resource_type is not ResourceType.CLUSTER else "LITERAL"


def _principals(names: Sequence[str]) -> list[str]:
    for name in names:
        if ":" not in name:
            raise CommandError(f"{name} is not a principal: give its type, too, as in User:{name}")
    return list(dict.fromkeys(names))


async def list_matching(cluster: Cluster, wanted: Sequence[AclBindingFilter], *, as_json: bool) -> int:
    """Show the ACLs that match; returns the exit code."""
    try:
        _show(await _found(cluster, wanted), as_json=as_json)
    except BrokerError as error:
        return _refused(error)
    return 0


async def add_acls(cluster: Cluster, acls: Sequence[AclBinding], *, as_json: bool) -> int:
    """Add ACLs and show those that were added; returns the exit code."""
    failed: set[AclBinding] = set()
    code = 0
    try:
        await AclAdmin(cluster).create_acls(acls)
    except PartlyFailedError as problem:
        for acl, error in problem.errors.items():
            failed.add(acl)
            code = _refused(error)
    except BrokerError as error:
        return _refused(error)
    _show([acl for acl in acls if acl not in failed], as_json=as_json)
    return code


async def remove_matching(cluster: Cluster, wanted: Sequence[AclBindingFilter], *, yes: bool, as_json: bool) -> int:
    """Show the ACLs that match, confirm, and remove them; returns the exit code."""
    try:
        found = await _found(cluster, wanted)
        if not found:
            return COMMAND.report(f"no such ACLs at {cluster.name}")
        if not as_json or not yes:
            _show(found, as_json=as_json)
        if not confirmed(f"Remove {count(len(found), 'ACL')}?", yes=yes, as_json=as_json):
            return COMMAND.report(NOT_CONFIRMED)
        deleted = await AclAdmin(cluster).delete_acls([_only(acl) for acl in found])
    except BrokerError as error:
        return _refused(error)
    removed = [acl for acls in deleted.values() for acl in acls]
    if as_json:
        _show(removed, as_json=True)
    else:
        sys.stdout.write(f"removed {count(len(removed), 'ACL')}\n")
    return 0


async def _found(cluster: Cluster, wanted: Sequence[AclBindingFilter]) -> list[AclBinding]:
    found: dict[AclBinding, None] = {}
    for each in wanted:
        found.update(dict.fromkeys(await AclAdmin(cluster).describe_acls(each)))
    return sorted(found)


def _only(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.resource_type, acl.name, acl.principal, acl.operation, acl.permission, acl.host, acl.pattern_type
    )


def _show(acls: Sequence[AclBinding], *, as_json: bool) -> None:
    if as_json:
        write_json(*(acl._asdict() for acl in acls))
    else:
        Terminal.standard_output().table(_ACLS, acls)


def _refused(error: ClientError) -> int:
    cure = ""
    if isinstance(error, BrokerError) and error.code == ErrorCode.SECURITY_DISABLED:
        cure = "; set authorizer.class.name on the brokers (docs/acls.md)"
    return COMMAND.report(f"{error}{cure}")
