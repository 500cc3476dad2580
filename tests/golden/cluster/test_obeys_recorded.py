"""What Apache Kafka's controller sent to each of three brokers, sent to ours: it answers as Apache's did."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from golden.cluster.interbroker_transcript import from_lines
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import decode, encode
from ottla.wire.framing import encode_request_header, parse_request_header, parse_response_header
from ottla.wire.messages.leader_and_isr import LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from support.controlled_broker import ControlledBroker
from support.recording_tap import Exchange

RECORDED = Path(__file__).parent / "interbroker"
CONTROL = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
NOWHERE = 1
"""A port at which nobody listens: the recorded ones may be somebody else's today."""


def request_of(one: Exchange) -> Any:
    _, position = parse_request_header(one.request)
    return decode(API[one.api_key].request, one.request, one.api_version, position)


def frame_of(one: Exchange) -> bytes:
    """The request as it was sent, but for the ports of brokers."""
    request = request_of(one)
    if not isinstance(request, UpdateMetadataRequest):
        return one.request
    for broker in request.live_brokers:
        for endpoint in broker.endpoints:
            endpoint.port = NOWHERE
    header, _ = parse_request_header(one.request)
    return encode_request_header(header) + encode(request, one.api_version)


def errors_of(one: Exchange, answer: bytes) -> Any:
    """What a response says; Apache's order of partitions is that of a hash table."""
    _, position = parse_response_header(answer, one.api_key, one.api_version)
    response = decode(API[one.api_key].response, answer, one.api_version, position)
    partitions: list[Any] = []
    if isinstance(response, LeaderAndIsrResponse):
        partitions = [
            (str(topic.topic_id), each.partition_index, each.error_code)
            for topic in response.topics
            for each in topic.partition_errors
        ]
    elif isinstance(response, StopReplicaResponse):
        partitions = [(each.topic_name, each.partition_index, each.error_code) for each in response.partition_errors]
    return response.error_code, sorted(partitions)


@pytest.mark.spec("R1")
@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_answers_to_recorded_requests(broker_id: int, tmp_path: Path) -> None:
    scenes = [from_lines(path) for path in sorted(RECORDED.glob("*.jsonl"))]
    asked = [one for scene in scenes for one in scene if one.api_key in CONTROL and one.receiver == broker_id]
    asked = [one for one in asked if one.request]
    assert len(asked) > 20

    async def scenario() -> None:
        test = ControlledBroker(tmp_path, broker_id)
        await test.begin()
        broker_epoch = -1
        try:
            for one in asked:
                epoch = request_of(one).broker_epoch
                if broker_epoch < epoch and broker_epoch >= 0:
                    await test.restart()  # as Apache's broker was
                broker_epoch = max(epoch, broker_epoch)
                answer = await test.send(frame_of(one))
                if one.answered:
                    assert errors_of(one, answer) == errors_of(one, one.response), request_of(one)
        finally:
            await test.broker.stop()

    asyncio.run(scenario())
