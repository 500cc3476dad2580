"""`ottla token`: delegation tokens, by which others log in for a while in the name of a user."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import NOT_CONFIRMED, Command, CommandError, confirmed
from ottla.cli.group.offset_options import parse_duration_ms
from ottla.cli.log.output import instant
from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.terminal import Cell, Column, Style, Terminal, write_json

if TYPE_CHECKING:
    from ottla.client.admin.model import DelegationToken
    from ottla.client.admin.tokens import TokenAdmin
    from ottla.peer.cluster import Cluster

COMMAND = Command("ottla token")
_BY_BROKER = -1

app = make_app("token", "Show, make, renew and delete delegation tokens, by which others log in as a user.")

TokenId = Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `ottla token list` shows it.")]
Period = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="How long, as in PT12H or P7D [what the broker allows].")
]


@cluster_command(app)
def create(
    shared: ClusterOptions,
    owner: Annotated[
        str | None, typer.Option(metavar="TYPE:NAME", help="Whose token it is, as in User:alice [your own].")
    ] = None,
    renewers: Annotated[
        list[str] | None,
        typer.Option("--renewer", metavar="TYPE:NAME", help="Who may renew it beside the owner; may be repeated."),
    ] = None,
    lifetime: Period = None,
) -> None:
    """Make a token, and print the settings by which clients log in with it. They are a secret."""

    async def work(tokens: TokenAdmin) -> int:
        made = await tokens.create_delegation_token(
            owner=owner, renewers=renewers or (), max_lifetime_ms=_period_ms(lifetime)
        )
        if shared.as_json:
            write_json(_row(made) | {"hmac": made.hmac_as_base64})
            return 0
        sys.stdout.write(
            f"# {made.owner}, until {instant(made.expiry_timestamp_ms)}, "
            f"or {instant(made.max_timestamp_ms)} if it is renewed\n"
            f"sasl.username={made.token_id}\nsasl.password={made.hmac_as_base64}\nsasl.tokenauth=true\n"
        )
        return 0

    _run(shared, work)


@cluster_command(app, "list")
def list_tokens(
    shared: ClusterOptions,
    owners: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="TYPE:NAME", help="Only of this owner or renewer; may be repeated."),
    ] = None,
) -> None:
    """List the tokens that you own, requested or may renew, and those that ACLs let you see."""

    async def work(tokens: TokenAdmin) -> int:
        found = await tokens.describe_delegation_token(owners or None)
        if shared.as_json:
            write_json(*map(_row, found))
        elif found:
            Terminal.standard_output().table(_COLUMNS, found, indent="")
        else:
            Terminal.standard_output().line("no tokens")
        return 0

    _run(shared, work)


@cluster_command(app)
def renew(shared: ClusterOptions, token_id: TokenId, period: Period = None) -> None:
    """Have a token live longer, from now on."""

    async def work(tokens: TokenAdmin) -> int:
        token = await _named(tokens, token_id)
        expiry_ms = await tokens.renew_delegation_token(token.hmac, renew_time_period_ms=_period_ms(period))
        if shared.as_json:
            write_json({"token": token_id, "expires_ms": expiry_ms})
        else:
            sys.stdout.write(f"renewed: token {token_id}, until {instant(expiry_ms)}\n")
        return 0

    _run(shared, work)


@cluster_command(app)
def delete(shared: ClusterOptions, token_id: TokenId, yes: Yes = False) -> None:
    """Delete a token. Sessions that it began last until the time at which it would have expired.

    Ends with 0, with 1 where it was not confirmed, with 2 where the token is not found.
    """

    async def work(tokens: TokenAdmin) -> int:
        token = await _named(tokens, token_id)
        if not confirmed(f"Delete token {token_id} of {token.owner}?", yes=yes, as_json=shared.as_json):
            return COMMAND.report(NOT_CONFIRMED)
        await tokens.expire_delegation_token(token.hmac)
        if shared.as_json:
            write_json({"deleted": token_id})
        else:
            sys.stdout.write(f"deleted: token {token_id} of {token.owner}\n")
        return 0

    _run(shared, work)


_COLUMNS: tuple[Column[DelegationToken], ...] = (
    Column("TOKEN", lambda each: Cell(each.token_id, Style.NAME)),
    Column("OWNER", lambda each: each.owner, may_shrink=True),
    Column("REQUESTER", lambda each: each.token_requester, may_shrink=True),
    Column("RENEWERS", lambda each: " ".join(each.renewers), may_shrink=True),
    Column("EXPIRES", lambda each: instant(each.expiry_timestamp_ms)),
    Column("AT MOST", lambda each: instant(each.max_timestamp_ms)),
)


def _row(token: DelegationToken) -> dict[str, object]:
    return {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.token_requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issue_timestamp_ms,
        "expires_ms": token.expiry_timestamp_ms,
        "at_most_ms": token.max_timestamp_ms,
    }


def _period_ms(text: str | None) -> int:
    return _BY_BROKER if text is None else parse_duration_ms(text, "--for")


async def _named(tokens: TokenAdmin, token_id: str) -> DelegationToken:
    """The token of this id. Raises CommandError."""
    token = next((each for each in await tokens.describe_delegation_token() if each.token_id == token_id), None)
    if token is None:
        raise CommandError(
            f"token {token_id} is not there, or you may not see it; `ottla token list` shows those that you may"
        )
    return token


def _run(shared: ClusterOptions, work: Callable[[TokenAdmin], Awaitable[int]]) -> None:
    async def by_brokers(cluster: Cluster) -> int:
        from ottla.client.admin.tokens import TokenAdmin

        return await work(TokenAdmin(cluster))

    COMMAND.run_with_cluster(shared, by_brokers)
