"""Forgetting a broker that will not come back: what is left of it in the metadata is removed.

In ZooKeeper mode a registration goes with the broker's session. Left are its dynamic settings, which another broker of
that id would get, and topics' lists of throttled replicas. Replicas are never taken from it: the operator must move
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.control.refusals import METADATA_ERRORS, metadata_refusal
from ottla.broker.control.znodes import find_broker_config
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import BrokerConfigZnode, BrokerIdZnode, ConfigChangeZnode, ZnodeDataError
from ottla.zk.tree import Create, Delete, NoNodeError

if TYPE_CHECKING:
    from ottla.broker.control.plane import ControlPlane
    from ottla.broker.slices import LoopSlices

#: Settings of topics that name brokers.
THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class _Traces:
    """The places where the image names a broker."""

    def __init__(self) -> None:
        self.replicas = 0
        #: One of the partitions of which it has replicas.
        self.example = ""
        #: Topics whose settings name it.
        self.throttled: list[str] = []


async def unregister(control: ControlPlane, broker_id: int, slices: LoopSlices) -> TopicRefusal | None:
    """Forget a broker; return why that is refused, if it is."""
    try:
        return await _unregister(control, broker_id, slices)
    except METADATA_ERRORS as error:
        return metadata_refusal(error)
    except ZnodeDataError as error:
        return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"The metadata is damaged: {error}")


async def _unregister(control: ControlPlane, broker_id: int, slices: LoopSlices) -> TopicRefusal | None:
    zk = control.session.zk
    if await zk.exists(BrokerIdZnode.path(broker_id)) is not None:
        return TopicRefusal(
            ErrorCode.POLICY_VIOLATION,
            f"Broker {broker_id} is alive. Stop it first, and wait until its session has ended",
        )
    traces = await _traces_of(control, broker_id, slices)
    if traces.replicas:
        return TopicRefusal(
            ErrorCode.POLICY_VIOLATION,
            f"Broker {broker_id} still has replicas of {traces.replicas} partitions, {traces.example} among them. Move "
            "them to other brokers first, or bring it back",
        )
    _, version = await find_broker_config(zk, str(broker_id))
    if version is None and not traces.throttled:
        return TopicRefusal(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Nothing is known of a broker {broker_id}: it has left no trace"
        )
    for topic in traces.throttled:
        refusal = await control.topic_configs.change(topic, lambda now: _without(now, broker_id), validate_only=False)
        if refusal is not None and refusal.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return refusal
    if version is not None:
        name = str(broker_id)
        notification = Create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode(f"brokers/{name}"), sequential=True)
        try:
            await zk.multi([Delete(BrokerConfigZnode.path(name), version), notification])
        except NoNodeError:
            return None  # another broker was asked, too
    return None


async def _traces_of(control: ControlPlane, broker_id: int, slices: LoopSlices) -> _Traces:
    found = _Traces()
    for name in tuple(control.image.topics):
        await slices.point()
        topic = control.image.topics.get(name)
        if topic is None:
            continue
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas:
                found.replicas += 1
                found.example = found.example or f"{name}-{index}"
        if _without(topic.configs, broker_id) != topic.configs:
            found.throttled.append(name)
    return found


def _without(configs: Mapping[str, str], broker_id: int) -> dict[str, str]:
    """A topic's settings that do not name the broker."""
    left = dict(configs)
    for name in THROTTLED:
        text = configs.get(name, "")
        replicas = [replica for replica in text.split(",") if replica.strip().rpartition(":")[2] != str(broker_id)]
        if ":" not in text or len(replicas) == len(text.split(",")):
            continue
        if replicas:
            left[name] = ",".join(replicas)
        else:
            del left[name]
    return left
