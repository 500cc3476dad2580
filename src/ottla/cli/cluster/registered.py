"""Brokers that are registered in the ZooKeeper of `ottla cluster`, also those that were started by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.zk.tree import NoNodeError, ZkError

if TYPE_CHECKING:
    from ottla.config.listeners import Endpoint
    from ottla.zk.client import ZkClient

SESSION_TIMEOUT_MS: Final = 10_000
CONNECTION_TIMEOUT_MS: Final = 5_000
#: A broker that does not take a connection so soon counts as alive: only a port that nothing listens on refuses.
PROBE_TIMEOUT_S: Final = 2.0


class RegisteredBrokers:
    """Looks them up; one session, opened with the first look."""

    def __init__(self, zookeeper: str) -> None:
        self._zookeeper = zookeeper
        self._zk: ZkClient | None = None

    async def live(self) -> list[int] | None:
        """The ids of registered brokers, without killed ones whose sessions have yet to expire.

        None where ZooKeeper does not answer.
        """
        from ottla.broker.control.znodes import read_brokers
        from ottla.zk.client import ZkUnreachableError
        from ottla.zk.kazoo_client import connect_kazoo

        try:
            if self._zk is None:
                self._zk = await connect_kazoo(self._zookeeper, SESSION_TIMEOUT_MS, CONNECTION_TIMEOUT_MS)
            brokers = await read_brokers(self._zk)
        except NoNodeError:
            return []  # none has ever registered
        except (ZkError, ZkUnreachableError):
            return None
        ids = sorted(brokers)
        alive = await asyncio.gather(*(_is_alive(brokers[each].image.endpoints) for each in ids))
        return [each for each, is_alive in zip(ids, alive, strict=True) if is_alive]

    async def close(self) -> None:
        """End the session."""
        if self._zk is not None:
            await self._zk.close()


async def _is_alive(endpoints: Sequence[Endpoint]) -> bool:
    return not all([await refuses(each.host, each.port) for each in endpoints])


async def refuses(host: str, port: int) -> bool:
    """Whether nothing listens on the port."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
