from __future__ import annotations

import asyncio

import pytest

from ottla.peer import bootstrap
from ottla.peer.bootstrap import connect_to_any


class Made:
    def __init__(self):
        self.is_open = True

    def close(self):
        self.is_open = False


@pytest.mark.parametrize("turns", range(8))
def test_whenever_it_is_cancelled_no_connection_is_left(monkeypatch, turns):
    """One address answers; another does while it is given up, which takes some turns of the loop."""
    monkeypatch.setattr(bootstrap, "HEAD_START_S", 0)

    async def body():
        made, both_begun = [], asyncio.Event()

        async def connect(host, port):
            if host == "quick":
                await both_begun.wait()
            else:
                both_begun.set()
                try:
                    await asyncio.sleep(60)  # sleep: until it is cancelled
                except asyncio.CancelledError:
                    for _ in range(5):
                        await asyncio.sleep(0)
            made.append(Made())
            return made[-1]

        task = asyncio.create_task(connect_to_any([("quick", 1), ("slow", 1)], connect))
        await both_begun.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            assert [each.is_open for each in made] == [False] * len(made)

    asyncio.run(body())
