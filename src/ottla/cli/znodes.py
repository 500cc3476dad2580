"""`ottla zookeeper ls`, `get` and `tree`: the nodes of any ZooKeeper, also of Apache's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.log.output import instant
from ottla.cli.options import DEFAULT_TIMEOUT_S, Json, checked_seconds
from ottla.cli.terminal import Style, Terminal, printable, shortened, write_json

if TYPE_CHECKING:
    from ottla.ops.znodes import ZnodeView
    from ottla.zk.access import ZkAccess
    from ottla.zk.client import ZkClient

COMMAND = Command("ottla zookeeper")
DEFAULT_ZOOKEEPER = "127.0.0.1:2181"
#: Characters of a node's data in a tree.
MOST_DATA_CHARS = 120
#: A session that is only read in, ms.
SESSION_TIMEOUT_MS = 10_000

Path = Annotated[str, typer.Argument(help="The path of a node.")]
Servers = Annotated[
    str,
    typer.Option(
        "--zookeeper", "-z", metavar="HOST:PORT,…/CHROOT", help="The ensemble, and the chroot of the paths.",
        envvar="OTTLA_ZOOKEEPER",
    ),
]  # fmt: skip
Config = Annotated[
    str | None,
    typer.Option(
        "--zookeeper-config", metavar="FILE", envvar="OTTLA_ZOOKEEPER_CONFIG",
        help="Properties file (a broker's, for example) with the login and TLS to ZooKeeper.",
    ),
]  # fmt: skip
Timeout = Annotated[
    float,
    typer.Option("--timeout", help="Seconds that ZooKeeper has to answer.", min=0.1, callback=checked_seconds),
]


def ls(
    path: Path = "/",
    servers: Servers = DEFAULT_ZOOKEEPER,
    config: Config = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """List the children of a node, by name."""

    async def work(zk: ZkClient) -> int:
        for name in await zk.children(path):
            if as_json:
                write_json({"name": name, "path": f"{path.rstrip('/')}/{name}"})
            else:
                print(printable(name))
        return 0

    run_with_zookeeper(COMMAND, servers, config, timeout_s, work)


def get(
    path: Path,
    servers: Servers = DEFAULT_ZOOKEEPER,
    config: Config = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Show a node: its data, and when and by whom it was made and changed."""

    async def work(zk: ZkClient) -> int:
        from ottla.ops.znodes import read_znode

        node = await read_znode(zk, path)
        if as_json:
            write_json(node.row())
        else:
            _show(Terminal.standard_output(), node)
        return 0

    run_with_zookeeper(COMMAND, servers, config, timeout_s, work)


def tree(
    path: Path = "/",
    depth: Annotated[int | None, typer.Option(help="How many levels below the node [all].", min=0)] = None,
    servers: Servers = DEFAULT_ZOOKEEPER,
    config: Config = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Show a node and all below it, with their data; an ephemeral node is marked with its session.

    Ends with 1 where a node may not be read.
    """

    async def work(zk: ZkClient) -> int:
        from ottla.ops.znodes import read_subtree

        terminal = Terminal.standard_output()
        code = 0
        async for node in read_subtree(zk, path, depth):
            if not node.is_readable:
                code = COMMAND.report(f"{node.path} is not shown: its ACL does not let everyone read it")
            if as_json:
                write_json(node.row())
            else:
                terminal.line(_line(terminal, node))
        return code

    run_with_zookeeper(COMMAND, servers, config, timeout_s, work)


def _show(terminal: Terminal, node: ZnodeView) -> None:
    value, stat = node.value, node.stat
    if isinstance(value, dict | list):
        for line in json.dumps(value, ensure_ascii=False, indent=2).splitlines():
            terminal.line(printable(line))
    elif node.data is None:
        terminal.line(terminal.paint("no data", Style.FAINT))
    else:
        terminal.line(printable(node.text))
    owner = f", ephemeral, of session {stat.ephemeral_owner:#x}" if stat.ephemeral_owner else ""
    terminal.line(
        terminal.paint(
            f"version {stat.version}, created {instant(stat.ctime_ms)}, changed {instant(stat.mtime_ms)} UTC, "
            f"{stat.children_count} {'child' if stat.children_count == 1 else 'children'}{owner}",
            Style.HEADING,
        )
    )


def _line(terminal: Terminal, node: ZnodeView) -> str:
    name = node.path.rsplit("/", 1)[1] if node.depth else node.path
    text = printable(node.text)
    if terminal.width is not None and len(text) > MOST_DATA_CHARS:
        text = shortened(text, MOST_DATA_CHARS)
    owner = f"  (session {node.stat.ephemeral_owner:#x})" if node.stat.ephemeral_owner else ""
    shown = terminal.paint(printable(name), Style.NAME)
    return f"{'  ' * node.depth}{shown}{'  ' if text else ''}{text}{terminal.paint(owner, Style.FAINT)}"


def run_with_zookeeper(
    command: Command,
    servers: str,
    config: str | None,
    timeout_s: float,
    work: Callable[[ZkClient], Awaitable[int]],
    *,
    makes_chroot: bool = False,
) -> NoReturn:
    """Connect to a ZooKeeper, do `work`, disconnect, and end the process."""
    command.require("a connection to ZooKeeper", ("kazoo",), "zookeeper")
    from ottla.peer.errors import InvalidArgumentError
    from ottla.zk.address import ZkAddressError
    from ottla.zk.client import ZkUnreachableError
    from ottla.zk.layout import ZnodeDataError
    from ottla.zk.tree import ZkError

    async def whole() -> int:
        from ottla.zk.tree import BadArgumentsError, NoAuthError, NoNodeError

        zk = await _connect(servers, timeout_s, _access(config), makes_chroot=makes_chroot)
        try:
            return await work(zk)
        except NoNodeError as problem:
            return command.report(
                f"node {problem.path} does not exist; `ottla zookeeper tree` shows those that there are"
            )
        except BadArgumentsError as problem:
            path = "/" + problem.path.strip("/")
            raise CommandError(f"{problem.path} is not a path of a node; {path} is") from problem
        except NoAuthError as problem:
            raise CommandError(
                f"{problem.path} may not be read or changed: its ACL does not let this user; name a file with the "
                "login by --zookeeper-config"
            ) from problem
        finally:
            await zk.close()

    expected = (ZkAddressError, ZkUnreachableError, ZkError, ZnodeDataError, InvalidArgumentError)
    command.run(lambda: asyncio.run(whole()), expected, until_closed=True)


def _access(config: str | None) -> ZkAccess:
    from ottla.zk.access import AccessError, ZkAccess, access_of_file

    try:
        return ZkAccess() if config is None else access_of_file(config)
    except AccessError as error:
        raise CommandError(f"--zookeeper-config: {error}") from error


async def _connect(servers: str, timeout_s: float, access: ZkAccess, *, makes_chroot: bool) -> ZkClient:
    """Session below the chroot, which has to be there: a command that only reads does not make it."""
    from ottla.zk.address import ZkAddress
    from ottla.zk.client import ensure_path
    from ottla.zk.kazoo_client import connect_kazoo

    address, timeout_ms = ZkAddress.parse(servers), round(timeout_s * 1000)
    if address.chroot:
        zk = await connect_kazoo(address._replace(chroot=""), SESSION_TIMEOUT_MS, timeout_ms, access=access)
        try:
            if makes_chroot:
                await ensure_path(zk, address.chroot)
            elif await zk.exists(address.chroot) is None:
                raise CommandError(
                    f"node {address.chroot}, the root of the paths, does not exist at {address.servers}; "
                    f"`ottla zookeeper ls -z {address.servers}` lists those that there are"
                )
        finally:
            await zk.close()
    return await connect_kazoo(address, SESSION_TIMEOUT_MS, timeout_ms, access=access)
