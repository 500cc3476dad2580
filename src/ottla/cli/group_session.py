"""What the commands of `ottla group` share: where the cluster is, how they ask it, how they answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ottla.cli.ending import end
from ottla.cli.terminal import printable

if TYPE_CHECKING:
    from ottla.peer.cluster import Cluster

COMMAND = "ottla group"
EXIT_REFUSED = 1
DEFAULT_SERVERS = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 15.0

Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", help="One or more host:port of the cluster.", envvar="OTTLA_BOOTSTRAP_SERVER"
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds that brokers have to answer.", min=0.1)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")]


def run(servers: str, timeout_s: float, work: Callable[[Cluster], Awaitable[int]]) -> NoReturn:
    """Do `work` with a cluster and end the process with the code that it gives, or with what went wrong in a line."""
    from ottla.client.errors import ClientError
    from ottla.peer.cluster import Cluster
    from ottla.peer.settings import ConnectionSettings

    async def whole() -> int:
        timeout_ms = round(timeout_s * 1000)
        settings = ConnectionSettings(
            servers,
            client_id="ottla-group",
            request_timeout_ms=timeout_ms,
            default_api_timeout_ms=timeout_ms,
            socket_connection_setup_timeout_ms=timeout_ms,
            unknown_topic_timeout_ms=0,
        )
        cluster = Cluster(settings)
        try:
            return await work(cluster)
        finally:
            await cluster.close()

    end(COMMAND, lambda: asyncio.run(whole()), (ClientError,))


def told(message: str) -> int:
    """Say on standard error what is refused, and give the exit code for it."""
    print(f"{COMMAND}: {printable(message)}", file=sys.stderr)
    return EXIT_REFUSED


def write_json(row: Mapping[str, Any]) -> None:
    """One object a line."""
    sys.stdout.write(json.dumps(row, ensure_ascii=False, separators=(", ", ": ")) + "\n")
    sys.stdout.flush()
