from __future__ import annotations

import asyncio

import pytest

from ottla.env.futures import settle


def test_the_first_outcome_counts() -> None:
    async def outcomes() -> None:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(3)]
        futures[2].cancel()
        for future, error in zip(futures, (None, ValueError("no"), None), strict=True):
            settle(future, 7, error)
            settle(future, 8, OSError("too late"))
        assert futures[0].result() == 7
        with pytest.raises(ValueError, match="no"):
            futures[1].result()
        assert futures[2].cancelled()

    asyncio.run(outcomes())
