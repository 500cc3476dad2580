"""A consumer of a group ends soon after it is cancelled, wherever its broker stopped answering (as by SIGSTOP)."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from ottla.client import Consumer
from ottla.client.consumer.consumer import CLOSE_TIMEOUT_MS
from ottla.client.errors import ClientError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersion
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.leave_group import LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse
from support.fake_cluster import SILENT, FakeCluster

CONSUMERS = 20
#: What a busy machine may take on top of the time that `close` gives itself.
PATIENCE_S = 20.0
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14


class StoppingCluster(FakeCluster):
    """Each group has one member. From request number `stops_at` on nothing is answered; connections are accepted."""

    def __init__(self, stops_at: int, not_there_yet: int) -> None:
        self.stops_at = stops_at
        #: So many look-ups of coordinators are answered as while `__consumer_offsets` is made.
        self.not_there_yet = not_there_yet
        super().__init__(1)
        self.waits_for_records = True

    def handle(self, node: int, request: Any) -> Any:
        if len(self.requests) >= self.stops_at:
            self.requests.append((node, request.header.api_key, request.message))
            return SILENT
        return super().handle(node, request)

    def on_api_versions(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        answer = super().on_api_versions(node, request, code)
        newest = {JOIN_GROUP: 9, HEARTBEAT: 4, LEAVE_GROUP: 5, SYNC_GROUP: 5}
        answer.api_keys += [ApiVersion(api_key=key, min_version=0, max_version=most) for key, most in newest.items()]
        return answer

    def on_find_coordinator(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        self.not_there_yet -= 1
        missing = ErrorCode.COORDINATOR_NOT_AVAILABLE if self.not_there_yet >= 0 else None
        return super().on_find_coordinator(node, request, code or missing)

    def on_join_group(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        if not request.member_id:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m-{len(self.requests)}")
        protocol = request.protocols[0]
        member = JoinGroupResponseMember(member_id=request.member_id, metadata=protocol.metadata)
        return JoinGroupResponse(
            generation_id=1,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=request.member_id,
            member_id=request.member_id,
            members=[member],
        )

    def on_sync_group(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        return SyncGroupResponse(assignment=request.assignments[0].assignment)

    def on_heartbeat(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        return HeartbeatResponse()

    def on_leave_group(self, node: int, request: Any, code: ErrorCode | None) -> Any:
        return LeaveGroupResponse()


async def consume(fake: FakeCluster, group: str) -> None:
    settings = {"heartbeat_interval_ms": 10, "auto_commit_interval_ms": 15, "fetch_max_wait_ms": 20}
    async with Consumer(
        bootstrap_servers=fake.bootstrap, group_id=group, auto_offset_reset="earliest", retry_backoff_ms=5, **settings
    ) as consumer:
        await consumer.subscribe(["t"])
        while True:
            try:
                await consumer.poll(1000)
                await consumer.commit(timeout_ms=50)
            except ClientError:
                await asyncio.sleep(0.005)  # sleep: between two tries of an application


async def cancelled(fake: FakeCluster, group: str, after_s: float) -> float:
    """How long a consumer took to end that was cancelled after a while."""
    task = asyncio.create_task(consume(fake, group))
    await asyncio.sleep(after_s)  # sleep: wherever it is then
    begun = time.monotonic()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=CLOSE_TIMEOUT_MS / 1000 + PATIENCE_S)
    if not done:
        stack = "".join(map(str, task.get_stack()))
        raise AssertionError(f"consumer {group} ignores that it was cancelled: {task!r} {stack}")
    assert task.cancelled(), task.exception()
    return time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("G10")
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 53), marks=pytest.mark.long)])
def test_wherever_the_broker_stops(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        fake = StoppingCluster(chance.randrange(5, 600), chance.randrange(0, 40))
        fake.topic("t", 0, 0)
        times = [chance.uniform(0.0, 1.5) for _ in range(CONSUMERS)]

        async def rounds(fake: FakeCluster = fake, times: list[float] = times, seed: int = seed) -> tuple[float, int]:
            took = await asyncio.gather(*(cancelled(fake, f"g{seed}-{at}", each) for at, each in enumerate(times)))
            return max(took), len(asyncio.all_tasks())

        try:
            slowest_s, tasks = asyncio.run(rounds())
        finally:
            fake.close()
        assert slowest_s < CLOSE_TIMEOUT_MS / 1000 + PATIENCE_S
        assert tasks == 1, f"seed {seed}: tasks are left"
