"""All channels of the controller. Source: Apache Kafka 3.9, `ControllerChannelManager`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.control.channels.channel import BrokerChannel
    from ottla.broker.control.channels.messages import ControlMessages
    from ottla.broker.control.interbroker import BrokerConnector
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.controller_events import Event, LiveBroker, SendToBroker

#: How long a controller that shuts down waits for the other brokers to take its last requests, in seconds.
DRAIN_S = 5.0
LOOK_S = 0.02


class ControllerChannels:
    """A channel for each live broker beside this one. `post` gives the controller what brokers answer."""

    def __init__(
        self, broker_id: int, connector: BrokerConnector, slices: LoopSlices, post: Callable[[Event], None]
    ) -> None:
        self._broker_id = broker_id
        self._connector = connector
        self._slices = slices
        self._post = post
        self._channels: dict[int, BrokerChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._messages: ControlMessages | None = None

    def set_brokers(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Open and close channels, so that there is one for each of these registrations."""
        for broker_id, channel in list(self._channels.items()):
            if brokers.get(broker_id) != channel.broker:
                del self._channels[broker_id]
                closing = asyncio.get_running_loop().create_task(channel.closed())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        for broker_id, broker in brokers.items():
            if broker_id != self._broker_id and broker_id not in self._channels:
                self._channels[broker_id] = self._channel(broker)

    def _channel(self, broker: LiveBroker) -> BrokerChannel:
        # A broker that is alone needs neither these messages nor a client.
        from ottla.broker.control.channels.channel import BrokerChannel
        from ottla.broker.control.channels.messages import ControlMessages

        if self._messages is None:
            self._messages = ControlMessages(self._broker_id, self._connector.listener_name, self._slices)
        return BrokerChannel(broker, self._connector, self._messages, self._post)

    def send(self, sending: SendToBroker) -> None:
        """Queue requests to a broker; they are dropped if it is gone."""
        channel = self._channels.get(sending.broker_id)
        if channel is not None and channel.broker.epoch == sending.broker_epoch:
            channel.send(sending)

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet, of all brokers."""
        return sum(channel.waiting for channel in self._channels.values())

    async def drained(self) -> None:
        """Wait until all requests are answered, or for `DRAIN_S`."""
        for _ in range(round(DRAIN_S / LOOK_S)):
            if not self.waiting:
                return
            await asyncio.sleep(LOOK_S)  # sleep: until brokers have answered

    async def close(self) -> None:
        """Close all channels; unanswered requests are dropped."""
        self.set_brokers({})
        await asyncio.gather(*self._closing, return_exceptions=True)
