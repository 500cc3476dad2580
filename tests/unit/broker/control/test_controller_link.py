"""Requests of a broker to the controller, while the controller changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker.control.producer_ids import ProducerIdsUnavailableError
from ottla.config.listeners import Endpoint
from ottla.zk.client import LocalClient
from ottla.zk.layout import BrokerIdZnode, BrokerRegistration, ControllerZnode
from ottla.zk.tree import Create, Delete
from support.controlled_broker import CONTROLLER, ControlledBroker
from support.waiting import until

pytestmark = pytest.mark.spec("R1")

#: Far less than the time within which the former controller had to answer (30 s).
AT_ONCE_S = 15.0


def registering(port: int, broker_id: int = CONTROLLER) -> Create:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", port)
    data = BrokerIdZnode.encode(BrokerRegistration(broker_id, (endpoint,)))
    return Create(BrokerIdZnode.path(broker_id), data, ephemeral=True)


async def hanging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes requests, and does not answer."""
    await reader.read()
    writer.close()


async def another_is_elected(zk: LocalClient, port: int) -> None:
    elected = ControllerZnode.encode(CONTROLLER - 1, 0)
    await zk.multi([Delete(ControllerZnode.PATH), Create(ControllerZnode.PATH, elected, ephemeral=True)])


async def this_broker_is_elected(zk: LocalClient, port: int) -> None:
    await zk.delete(ControllerZnode.PATH)


async def it_registers_anew(zk: LocalClient, port: int) -> None:
    await zk.multi([Delete(BrokerIdZnode.path(CONTROLLER)), registering(port)])


@pytest.mark.parametrize("change", [another_is_elected, this_broker_is_elected, it_registers_anew])
def test_what_the_former_controller_does_not_answer_fails_at_once(
    tmp_path: Path, change: Callable[[LocalClient, int], Awaitable[None]]
) -> None:
    """Apache Kafka's controller never answers AlterPartition that it has queued when its session ends."""

    async def scenario() -> None:
        test = ControlledBroker(tmp_path)
        await test.begin()
        server = await asyncio.start_server(hanging, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await test.zk.multi([registering(port)])
        control = test.broker.control
        await until(lambda: control.membership.epoch_of(CONTROLLER) is not None, "the controller's registration")
        asked = asyncio.ensure_future(control.to_controller.allocate_producer_ids())
        await until(control.controller_link._kept._opening.locked, "a request on its way")
        await change(test.zk, port)
        with pytest.raises(ProducerIdsUnavailableError, match="the controller has changed before it answered"):
            await asyncio.wait_for(asked, AT_ONCE_S)
        # Else the broker asks it for a controlled shutdown.
        await test.zk.delete(BrokerIdZnode.path(CONTROLLER))
        await until(lambda: control.membership.epoch_of(CONTROLLER) is None, "the end of the registration")
        await test.broker.stop()
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())
