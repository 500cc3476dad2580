"""`ottla quota`: how much of the cluster's brokers users, clients and addresses may use."""

from __future__ import annotations

import sys
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.command import NOT_CONFIRMED, Command, CommandError, confirmed
from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.terminal import Cell, Column, Style, Terminal, numbers, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.admin.model import ClientQuotaEntity, ClientQuotaFilterComponent
    from ottla.peer.cluster import Cluster

COMMAND = Command("ottla quota")
_WHOSE: Final = "--user, --client, --ip or --user-defaults, --client-defaults, --ip-defaults"

app = make_app("quota", "Show, set and delete quotas of users, clients and addresses.")

OfUser = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user.")]
OfClient = Annotated[str | None, typer.Option("--client", metavar="ID", help="A client id; with a user, of that user.")]
OfIp = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An IP address.")]
OfUsers = Annotated[bool, typer.Option("--user-defaults", help="All users without quotas of their own.")]
OfClients = Annotated[bool, typer.Option("--client-defaults", help="All client ids without quotas of their own.")]
OfIps = Annotated[bool, typer.Option("--ip-defaults", help="All addresses without quotas of their own.")]


@cluster_command(app, "list")
def list_quotas(
    shared: ClusterOptions,
    user: OfUser = None,
    client: OfClient = None,
    ip: OfIp = None,
    user_defaults: OfUsers = False,
    client_defaults: OfClients = False,
    ip_defaults: OfIps = False,
) -> None:
    """List quotas, all or those of a user, a client or an address."""
    chosen = (user, user_defaults), (client, client_defaults), (ip, ip_defaults)

    async def work(cluster: Cluster) -> int:
        from ottla.client.admin.quotas import QuotaAdmin

        found = await QuotaAdmin(cluster).describe_client_quotas(_components(_entity(*chosen)))
        _show(shared, sorted(found.items(), key=lambda each: str(each[0])))
        return 0

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app, "set")
def set_quotas(
    shared: ClusterOptions,
    quotas: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="As in producer_byte_rate=1000000.")],
    user: OfUser = None,
    client: OfClient = None,
    ip: OfIp = None,
    user_defaults: OfUsers = False,
    client_defaults: OfClients = False,
    ip_defaults: OfIps = False,
) -> None:
    """Set quotas; brokers obey within a second.

    Keys: producer_byte_rate and consumer_byte_rate in bytes a second, request_percentage (100 is all the time of one
    thread), controller_mutation_rate in partitions created or deleted a second; of addresses
    connection_creation_rate in connections a second. Each counts on each broker.
    """
    chosen = (user, user_defaults), (client, client_defaults), (ip, ip_defaults)

    async def work(cluster: Cluster) -> int:
        from ottla.client.admin.quotas import QuotaAdmin

        entity, wanted = _required(*chosen), dict(map(_quota, quotas))
        await QuotaAdmin(cluster).alter_client_quotas({entity: wanted})
        _show(shared, [(entity, wanted)])
        return 0

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def delete(
    shared: ClusterOptions,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Keys of quotas [all it has].")] = None,
    user: OfUser = None,
    client: OfClient = None,
    ip: OfIp = None,
    user_defaults: OfUsers = False,
    client_defaults: OfClients = False,
    ip_defaults: OfIps = False,
    yes: Yes = False,
) -> None:
    """Delete quotas, after they were shown: others, or none, count from then on.

    Ends with 0, with 1 where it was not confirmed, with 2 where there are none.
    """
    chosen = (user, user_defaults), (client, client_defaults), (ip, ip_defaults)

    async def work(cluster: Cluster) -> int:
        from ottla.client.admin.quotas import QuotaAdmin

        admin, entity = QuotaAdmin(cluster), _required(*chosen)
        held = (await admin.describe_client_quotas(_components(entity), strict=True)).get(entity, {})
        wanted = {key: held[key] for key in keys or held if key in held}
        missing = ", ".join(each for each in keys or () if each not in held)
        if not wanted or missing:
            has = f"has no quota {missing}" if missing else "has no quotas"
            raise CommandError(f"{entity} {has}; `ottla quota list` shows those there are")
        if not shared.as_json:
            _show(shared, [(entity, wanted)])
        if not confirmed(f"Delete these of {entity}?", yes=yes, as_json=shared.as_json):
            return COMMAND.report(NOT_CONFIRMED)
        await admin.alter_client_quotas({entity: dict.fromkeys(wanted)})
        if shared.as_json:
            write_json(_row(entity, wanted))
        else:
            sys.stdout.write(f"deleted: {', '.join(wanted)} of {entity}\n")
        return 0

    COMMAND.run_with_cluster(shared, work)


def _components(entity: ClientQuotaEntity) -> list[ClientQuotaFilterComponent]:
    """The filter that finds an entity; with other types, too, unless it is strict."""
    from ottla.client.admin.model import ClientQuotaFilterComponent

    kinds = zip(("user", "client-id", "ip"), entity, strict=True)
    return [ClientQuotaFilterComponent(kind, name) for kind, name in kinds if name is not None]


def _entity(*chosen: tuple[str | None, bool]) -> ClientQuotaEntity:
    """The entity of the options. Raises CommandError."""
    from ottla.client.admin.model import DEFAULT_NAME, ClientQuotaEntity

    for name, is_default in chosen:
        if name is not None and (is_default or not name):
            raise CommandError("name either one user, client or address, or the defaults of them")
    entity = ClientQuotaEntity(*(DEFAULT_NAME if is_default else name for name, is_default in chosen))
    if entity.ip is not None and entity[:2] != (None, None):
        raise CommandError("an address has quotas of its own; leave --user and --client out, or --ip")
    return entity


def _required(*chosen: tuple[str | None, bool]) -> ClientQuotaEntity:
    entity = _entity(*chosen)
    if entity == (None, None, None):
        raise CommandError(f"say whose quotas: {_WHOSE}")
    return entity


def _quota(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not key or not equals or not isfinite(number):
        raise CommandError(f"{text}: expected key=number, as in producer_byte_rate=1000000")
    return key.strip(), number


_Quota = tuple["ClientQuotaEntity", str, float]
_COLUMNS: tuple[Column[_Quota], ...] = (
    Column("OF", lambda quota: Cell(str(quota[0]), Style.NAME), may_shrink=True),
    Column("QUOTA", lambda quota: quota[1]),
    numbers("VALUE", lambda quota: f"{quota[2]:.15g}"),
)


def _show(shared: ClusterOptions, found: Sequence[tuple[ClientQuotaEntity, Mapping[str, float]]]) -> None:
    if shared.as_json:
        write_json(*(_row(*each) for each in found))
    elif found:
        rows = [(entity, key, value) for entity, values in found for key, value in values.items()]
        Terminal.standard_output().table(_COLUMNS, rows, indent="")
    else:
        Terminal.standard_output().line("no quotas")


def _row(entity: ClientQuotaEntity, values: Mapping[str, float]) -> dict[str, object]:
    named = {kind: name for kind, name in zip(("user", "client", "ip"), entity, strict=True) if name is not None}
    return {**named, "quotas": dict(values)}
