"""Tests of coroutines; they need no plugin for asyncio."""

import asyncio

import orders_async

from ottla.testing import Broker


def test_orders_are_billed_once():
    async def scenario():
        async with Broker({"orders": 3}) as broker:
            servers = broker.bootstrap_servers
            billing = asyncio.create_task(orders_async.bill(servers, "billing", 2))
            await broker.aio.wait_for_group("billing", members=1)
            await orders_async.send(servers, {"anna": "4 apples", "dora": "2 pears"})
            assert sorted(await billing) == ["2 pears", "4 apples"]

            await orders_async.send(servers, {"anna": "1 plum"})
            assert await orders_async.bill(servers, "billing", 1) == ["1 plum"]

    asyncio.run(scenario())
