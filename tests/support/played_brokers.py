"""Brokers that a test plays for a real controller: they record its requests, and answer them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.env.network import ListeningSocket, ServerNetwork, StreamSocket
from ottla.wire.apis import API, ApiKey
from ottla.wire.connection import FrameRefusal, Request, ServerProtocol
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataResponse

MOST_BYTES = 16 * 1024 * 1024
BUFFER_BYTES = 256 * 1024
CONTROL = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)


class PlayedBroker:
    """One registration of a broker: it listens on `host`, and gives each control request to `said`."""

    def __init__(self, number: int, network: ServerNetwork, host: str, said: Callable[[int, Any], None]) -> None:
        self.number = number
        #: The czxid of its registration, known when that was made.
        self.epoch = -1
        #: Whether it leaves control requests without an answer.
        self.is_mute = False
        #: Replicas whose log directory has failed: (topic, partition).
        self.failed: set[tuple[str, int]] = set()
        self._said = said
        self._loop = asyncio.get_running_loop()
        self._listening: ListeningSocket = network.listen(host, 0)
        self._connections: dict[StreamSocket, ServerProtocol] = {}
        self._unanswered: list[Callable[[], None]] = []
        self._loop.add_reader(self._listening.fd, self._accept)

    @property
    def port(self) -> int:
        return self._listening.port

    def speak(self) -> None:
        """Answer what was left without an answer."""
        self.is_mute = False
        while self._unanswered:
            self._unanswered.pop(0)()

    def close(self) -> None:
        self._unanswered.clear()
        self._loop.remove_reader(self._listening.fd)
        self._listening.close()
        for connection in list(self._connections):
            self._hang_up(connection)

    def _accept(self) -> None:
        while (connection := self._listening.accept()) is not None:
            self._connections[connection] = ServerProtocol(MOST_BYTES)
            self._loop.add_reader(connection.fd, partial(self._receive, connection))

    def _hang_up(self, connection: StreamSocket) -> None:
        if self._connections.pop(connection, None) is not None:
            self._loop.remove_reader(connection.fd)
            connection.close()

    def _receive(self, connection: StreamSocket) -> None:
        buffer = bytearray(BUFFER_BYTES)
        try:
            size = connection.recv_into(memoryview(buffer))
        except BlockingIOError:
            return
        except OSError:
            size = 0
        requests = self._connections[connection].receive(bytes(buffer[:size])) if size else None
        if requests is None or isinstance(requests, FrameRefusal):
            self._hang_up(connection)
            return
        for request in requests:
            self._take(connection, request)

    def _take(self, connection: StreamSocket, request: Request) -> None:
        key = request.header.api_key
        if key == ApiKey.API_VERSIONS:
            served = [ApiVersion(api_key=each, min_version=0, max_version=API[each].max_version) for each in API]
            self._answer(connection, ApiVersionsResponse(api_keys=served))
        elif key not in CONTROL:
            self._hang_up(connection)  # it has no records for a follower
        else:
            self._said(self.number, request.message)
            answer = partial(self._answer_control, connection, request.message)
            if self.is_mute:
                self._unanswered.append(answer)
            else:
                answer()

    def _answer_control(self, connection: StreamSocket, request: Any) -> None:
        key = request.SCHEMA.api_key
        if key == ApiKey.UPDATE_METADATA:
            self._answer(connection, UpdateMetadataResponse())
        elif key == ApiKey.STOP_REPLICA:
            self._answer(connection, self._stopped(request))
        else:
            self._answer(connection, self._roles_taken(request))

    def _error(self, topic: str, partition: int) -> int:
        return int(ErrorCode.KAFKA_STORAGE_ERROR if (topic, partition) in self.failed else ErrorCode.NONE)

    def _stopped(self, request: Any) -> StopReplicaResponse:
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=each.partition_index,
                    error_code=self._error(topic.topic_name, each.partition_index),
                )
                for topic in request.topic_states
                for each in topic.partition_states
            ]
        )

    def _roles_taken(self, request: Any) -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(
                            partition_index=each.partition_index,
                            error_code=self._error(topic.topic_name, each.partition_index),
                        )
                        for each in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ]
        )

    def _answer(self, connection: StreamSocket, response: Any) -> None:
        protocol = self._connections.get(connection)
        if protocol is None:
            return
        frame = protocol.respond(response)
        try:
            sent = connection.send(frame, 0)
        except OSError:
            self._hang_up(connection)
            return
        assert sent == len(frame), "the other side does not read"
