"""`ottla user`: the users that log in by SCRAM. Passwords come from a file, the environment or a prompt."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.command import NOT_CONFIRMED, Command, CommandError, confirmed
from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.terminal import Cell, Column, Style, Terminal, write_json
from ottla.cli.znodes import Config, run_with_zookeeper

if TYPE_CHECKING:
    from ottla.ops.users import User, UsersInZooKeeper, UsersOfCluster
    from ottla.peer.cluster import Cluster
    from ottla.zk.client import ZkClient

    Users = UsersOfCluster | UsersInZooKeeper

COMMAND = Command("ottla user")
PASSWORD_VARIABLE: Final = "OTTLA_USER_PASSWORD"
#: Bytes of a file with a password; more is another kind of file.
MAX_PASSWORD_BYTES: Final = 4096
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384

app = make_app("user", "Show, make and delete the users that log in by SCRAM.")


class Mechanism(StrEnum):
    """The mechanisms of SCRAM."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Mechanisms = Annotated[
    list[Mechanism] | None,
    typer.Option("--mechanism", "-m", help="Only this mechanism; may be repeated [both].", case_sensitive=False),
]
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        metavar="HOST:PORT,…/CHROOT",
        help="Work on the znodes of a cluster in this ZooKeeper, also before its first broker is started.",
    ),
]


@cluster_command(app, "list")
def list_users(shared: ClusterOptions, zookeeper: ZooKeeper = None, config: Config = None) -> None:
    """List users and the iterations of their credentials."""

    async def work(users: Users) -> int:
        found = await users.list()
        if shared.as_json:
            write_json(*map(_row, found))
        elif found:
            Terminal.standard_output().table(_COLUMNS, found, indent="")
        else:
            Terminal.standard_output().line("no users")
        return 0

    _run(shared, zookeeper, config, work)


@cluster_command(app)
def create(
    shared: ClusterOptions,
    user: Name,
    mechanisms: Mechanisms = None,
    iterations: Annotated[
        int, typer.Option(help="Rounds of hashing.", min=MIN_ITERATIONS, max=MAX_ITERATIONS)
    ] = MIN_ITERATIONS,
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"File with the password, in place of {PASSWORD_VARIABLE} or a prompt."),
    ] = None,
    zookeeper: ZooKeeper = None,
    config: Config = None,
) -> None:
    """Make a user, or give one another password. Brokers know of it within a second."""
    try:
        if not user:
            raise CommandError("the user's name is empty; give it one")
        password = _password(user, password_file)
    except CommandError as problem:
        COMMAND.fail(str(problem))

    async def work(users: Users) -> int:
        await users.create(user, password, _chosen(mechanisms), iterations)
        return _done(shared, "created", user, _chosen(mechanisms))

    _run(shared, zookeeper, config, work)


@cluster_command(app)
def delete(
    shared: ClusterOptions,
    user: Name,
    mechanisms: Mechanisms = None,
    yes: Yes = False,
    zookeeper: ZooKeeper = None,
    config: Config = None,
) -> None:
    """Delete a user's credentials. Connections that are open stay.

    Ends with 0, with 1 where it was not confirmed, with 2 where the user has none of them.
    """

    async def work(users: Users) -> int:
        there = next((each for each in await users.list() if each.name == user), None)
        held = [] if there is None else [each.mechanism for each in there.credentials]
        wanted = _chosen(mechanisms) if mechanisms else held
        if not wanted or not set(wanted) <= set(held):
            missing = ", ".join(each for each in wanted if each not in held) or "SCRAM"
            raise CommandError(
                f"user {user!r} has no credential for {missing}; `ottla user list` shows those there are"
            )
        if not confirmed(f"Delete user {user} ({', '.join(wanted)})?", yes=yes, as_json=shared.as_json):
            return COMMAND.report(NOT_CONFIRMED)
        await users.delete(user, wanted)
        return _done(shared, "deleted", user, wanted)

    _run(shared, zookeeper, config, work)


def _column(mechanism: str) -> Column[User]:
    def iterations(user: User) -> str | None:
        return next((str(each.iterations) for each in user.credentials if each.mechanism == mechanism), None)

    return Column(mechanism, iterations)


_COLUMNS: tuple[Column[User], ...] = (
    Column("USER", lambda each: Cell(each.name, Style.NAME), may_shrink=True),
    *map(_column, Mechanism),
)


def _row(user: User) -> dict[str, object]:
    return {"user": user.name, "credentials": {each.mechanism: each.iterations for each in user.credentials}}


def _chosen(mechanisms: list[Mechanism] | None) -> list[str]:
    return [str(each) for each in dict.fromkeys(mechanisms or Mechanism)]


def _done(shared: ClusterOptions, what: str, user: str, mechanisms: list[str]) -> int:
    if shared.as_json:
        write_json({"user": user, what: mechanisms})
    else:
        sys.stdout.write(f"{what}: user {user} ({', '.join(mechanisms)})\n")
    return 0


def _password(user: str, file: Path | None) -> str:
    """The password; never an argument, which others on this machine could see. Raises CommandError."""
    if file is not None:
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_PASSWORD_BYTES + 1)
            password = data.decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read the password in {file}: {error}") from None
        if len(data) > MAX_PASSWORD_BYTES:
            raise CommandError(f"{file} has more than {MAX_PASSWORD_BYTES} bytes; name a file with the password alone")
        where = str(file)
    elif (variable := os.environ.get(PASSWORD_VARIABLE)) is not None:
        password, where = variable, PASSWORD_VARIABLE
    elif sys.stdin.isatty():
        from getpass import getpass

        password, where = getpass(f"Password of user {user}: "), "what was typed"
        if password and getpass("The same again: ") != password:
            raise CommandError("the two passwords differ; try again")
    else:
        raise CommandError(f"a password is missing; name a file with --password-file, or set {PASSWORD_VARIABLE}")
    if not password:
        raise CommandError(f"the password is empty in {where}; give one with a character or more")
    return password


def _run(
    shared: ClusterOptions, zookeeper: str | None, config: str | None, work: Callable[[Users], Awaitable[int]]
) -> None:
    if zookeeper is None:
        from ottla.client.errors import PartlyFailedError
        from ottla.ops.users import UsersOfCluster

        async def by_brokers(cluster: Cluster) -> int:
            return await work(UsersOfCluster(cluster))

        COMMAND.run_with_cluster(shared, by_brokers, (PartlyFailedError,))
    else:

        async def in_znodes(zk: ZkClient) -> int:
            from ottla.ops.users import UsersInZooKeeper

            return await work(UsersInZooKeeper(zk))

        run_with_zookeeper(COMMAND, zookeeper, config, shared.timeout_s, in_znodes, makes_chroot=True)
