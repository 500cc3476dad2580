"""Plays a script (`support.controller_script`) to a broker that is the controller, and records what it does.

After each step the player waits until nothing happens any more, and notes the answer to the step, the znodes that have
changed, and the control requests that each broker got. What differs from run to run is replaced: ids of topics by
`name#1`, broker epochs by whether they are the right ones; times are left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from ottla.config.listeners import Endpoint
from ottla.env.environment import Environment
from ottla.env.network import ServerNetwork
from ottla.peer.connection import PeerConnection, open_connection
from ottla.peer.errors import ClientTimeoutError
from ottla.peer.settings import ConnectionSettings
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.metadata import MetadataRequest
from ottla.zk.client import ZkClient, ensure_path
from ottla.zk.layout import (
    BrokerIdZnode,
    BrokerRegistration,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicZnode,
    LeaderAndIsr,
    LogDirEventNotificationZnode,
    PartitionStateZnode,
    PreferredReplicaElectionZnode,
    ReassignPartitionsZnode,
    TopicAssignment,
    TopicConfigZnode,
    TopicZnode,
)
from ottla.zk.tree import Create, Delete, NoNodeError, Operation, Set
from support.played_brokers import PlayedBroker

CONTROLLER = 0
"""The id of the broker that decides; only a script that names it gives it replicas."""
USURPER = 9
ASK_TIMEOUT_MS = 5_000
LOOK_S = 0.05
MOST_LOOKS = 400
#: Znodes that no controller changes, or that differ from run to run.
LEFT_OUT = (
    "/brokers/ids",
    "/brokers/seqid",
    "/cluster",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
)
ROOTS = (
    "/admin",
    "/brokers",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/log_dir_event_notification",
)
#: Nodes below these say something though they are empty.
REQUESTS = ("/admin/delete_topics/", "/isr_change_notification/", "/log_dir_event_notification/")
UNCHANGED_ZNODE = "unchanged"

Played: TypeAlias = dict[str, Any]
"""A step: `step`, `result`, `znodes` (path to data, null where it is gone), `said` (by broker, in order)."""


class Stage(Protocol):
    """Where a script is played: a controller and what the other brokers run on."""

    environment: Environment
    network: ServerNetwork
    zk: ZkClient
    #: Address of the broker that is the controller.
    controller: tuple[str, int]
    #: The host on which the played brokers listen.
    host: str

    async def quiet(self, heard: list[object]) -> None:
        """Wait until nothing happens any more: no znode changes, and `heard` does not grow."""


class Play:
    """Plays scripts on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._zk = stage.zk
        self._brokers: dict[int, PlayedBroker] = {}
        #: The last registrations of those that are gone.
        self._former: dict[int, int] = {}
        self._heard: list[object] = []
        self._said: dict[int, list[Any]] = {}
        self._connection: PeerConnection | None = None
        self._ids: dict[UUID, str] = {}
        self._znodes: dict[str, Any] = {}

    async def play(self, script: Iterable[str]) -> list[Played]:
        """Play it to its end, and return what happened step by step; the first one is what there was before."""
        played = [await self._noted("", None)]
        _, stat = await self._zk.get(BrokerIdZnode.path(CONTROLLER))
        self._former[CONTROLLER] = stat.czxid
        for line in script:
            name, *words = line.split()
            try:
                result = await getattr(self, f"_{name}")(*words)
            except ClientTimeoutError:
                result = "no answer"
            played.append(await self._noted(line, result))
        return played

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.close()
        if self._connection is not None:
            self._connection.close()

    # What is noted

    async def _noted(self, line: str, result: Any) -> Played:
        await self._stage.quiet(self._heard)
        before, self._znodes = self._znodes, await self._read()
        changed = {path: data for path, data in self._znodes.items() if before.get(path, UNCHANGED_ZNODE) != data}
        changed |= {path: None for path in before if path not in self._znodes}
        said, self._said = self._said, {}
        return {
            "step": line,
            "result": result,
            "znodes": dict(sorted(changed.items())),
            "said": {str(number): [self._told(number, each) for each in said[number]] for number in sorted(said)},
        }

    async def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        waiting = list(ROOTS)
        while waiting:
            path = waiting.pop()
            if path.startswith(LEFT_OUT):
                continue
            with suppress(NoNodeError):
                data, stat = await self._zk.get(path)
                waiting += [f"{path}/{name}" for name in await self._zk.children(path)]
                if data:
                    found[path] = self._plain(path, data, stat.version)
                elif path.startswith(REQUESTS):
                    found[path] = ""
        return found

    def _plain(self, path: str, data: bytes, version: int) -> Any:
        value = json.loads(data)
        if path == ControllerZnode.PATH:
            return value["brokerid"]
        if isinstance(value, dict) and "topic_id" in value:
            topic_id = TopicZnode.decode("", data).topic_id
            assert topic_id is not None
            value["topic_id"] = self._named(topic_id, path.rpartition("/")[2])
        if path.endswith("/state"):
            value["partition_epoch"] = version
        return value

    def _named(self, topic_id: UUID, topic: str) -> str:
        if topic_id not in self._ids:
            count = sum(name.startswith(f"{topic}#") for name in self._ids.values())
            self._ids[topic_id] = f"{topic}#{count + 1}"
        return self._ids[topic_id]

    def _hear(self, number: int, request: Any) -> None:
        self._heard.append(request)
        self._said.setdefault(number, []).append((self._brokers[number].epoch, request))

    def _told(self, number: int, heard: tuple[int, Any]) -> Any:
        epoch, request = heard
        assert request.controller_id == CONTROLLER
        assert not request.is_kraft_controller
        if epoch >= 0:
            assert request.broker_epoch == epoch, f"broker {number} has epoch {epoch}: {request}"
        key = ApiKey(request.SCHEMA.api_key)
        entries = [
            self._entry(key, topic, each, request.controller_epoch)
            for topic in request.topic_states
            for each in topic.partition_states
        ]
        entries.sort()
        if key is ApiKey.STOP_REPLICA:
            return ["StopReplica", request.controller_epoch, entries]
        live = request.live_leaders if key is ApiKey.LEADER_AND_ISR else request.live_brokers
        ids = sorted(each.broker_id if key is ApiKey.LEADER_AND_ISR else each.id for each in live)
        name = "LeaderAndIsr" if key is ApiKey.LEADER_AND_ISR else "UpdateMetadata"
        return [name, request.controller_epoch, entries, ids]

    def _entry(self, key: ApiKey, topic: Any, each: Any, epoch: int) -> list[Any]:
        place = [topic.topic_name, each.partition_index]
        if key is ApiKey.STOP_REPLICA:
            return [*place, each.leader_epoch, each.delete_partition]
        place.append(self._ids.get(topic.topic_id, "unknown id") if topic.topic_id.int else "no id")
        state = [*place, each.leader, each.leader_epoch, each.isr]
        assert each.controller_epoch <= epoch
        if key is ApiKey.UPDATE_METADATA:
            return [*state, each.zk_version, each.replicas, each.offline_replicas]
        moved = [each.adding_replicas, each.removing_replicas]
        return [*state, each.partition_epoch, each.replicas, *moved, each.is_new, each.leader_recovery_state]

    # Brokers

    def _made(self, number: int) -> tuple[PlayedBroker, Create]:
        stage = self._stage
        broker = self._brokers[number] = PlayedBroker(number, stage.network, stage.host, self._hear)
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", stage.host, broker.port)
        data = BrokerIdZnode.encode(BrokerRegistration(number, (endpoint,)))
        return broker, Create(BrokerIdZnode.path(number), data, ephemeral=True)

    async def _registered(self, broker: PlayedBroker) -> None:
        _, stat = await self._zk.get(BrokerIdZnode.path(broker.number))
        broker.epoch = self._former[broker.number] = stat.czxid

    async def _register(self, name: str) -> None:
        broker, create = self._made(int(name))
        await self._zk.multi([create])
        await self._registered(broker)

    async def _die(self, name: str) -> None:
        broker = self._brokers.pop(int(name))
        broker.close()
        await self._zk.delete(BrokerIdZnode.path(broker.number))

    async def _return(self, name: str) -> None:
        former = self._brokers[int(name)]
        former.close()
        broker, create = self._made(former.number)
        await self._zk.multi([Delete(BrokerIdZnode.path(broker.number)), create])
        await self._registered(broker)

    async def _shutdown(self, name: str) -> Any:
        number = int(name)
        request = ControlledShutdownRequest(broker_id=number, broker_epoch=self._former[number])
        response = await self._ask(request)
        remaining = sorted([each.topic_name, each.partition_index] for each in response.remaining_partitions)
        return [_name(response.error_code), remaining]

    async def _mute(self, name: str) -> None:
        self._brokers[int(name)].is_mute = True

    async def _speak(self, name: str) -> None:
        self._brokers[int(name)].speak()

    async def _fail(self, name: str, partition: str) -> None:
        self._brokers[int(name)].failed.add(_key(partition))
        data = LogDirEventNotificationZnode.encode(int(name))
        path = f"{LogDirEventNotificationZnode.ROOT}/log_dir_event_"
        await self._zk.multi([Create(path, data, sequential=True)])

    # Topics

    async def _create(self, name: str, replicas: str, *settings: str) -> Any:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=each)
            for index, each in enumerate(_replicas(replicas))
        ]
        configs = [
            CreatableTopicConfig(name=key, value=value) for key, _, value in (s.partition("=") for s in settings)
        ]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
        )
        [result] = (await self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=ASK_TIMEOUT_MS))).topics
        return _name(result.error_code)

    async def _found(self, name: str, replicas: str) -> None:
        data = TopicZnode.encode(TopicAssignment.of(None, dict(enumerate(_replicas(replicas)))))
        await ensure_path(self._zk, TopicConfigZnode.path(name), TopicConfigZnode.encode({}))
        with suppress(Exception):
            await self._zk.multi([Create(TopicZnode.path(name), data)])

    async def _grow(self, name: str, replicas: str) -> Any:
        added = [CreatePartitionsAssignment(broker_ids=each) for each in _replicas(replicas)]
        count = len(added)
        with suppress(NoNodeError):
            count += len((await self._assignment(name)).partitions)
        topic = CreatePartitionsTopic(name=name, count=count, assignments=added)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=ASK_TIMEOUT_MS, validate_only=False)
        [result] = (await self._ask(request)).results
        return _name(result.error_code)

    async def _assignment(self, name: str) -> TopicAssignment:
        data, _ = await self._zk.get(TopicZnode.path(name))
        return TopicZnode.decode(name, data)

    async def _delete(self, name: str) -> Any:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=ASK_TIMEOUT_MS)
        [result] = (await self._ask(request)).responses
        return _name(result.error_code)

    async def _mark(self, name: str) -> None:
        with suppress(Exception):
            await self._zk.create(DeleteTopicZnode.path(name))

    async def _move(self, partition: str, replicas: str) -> None:
        data = ReassignPartitionsZnode.encode({_key(partition): _replicas(replicas)[0]})
        with suppress(Exception):
            await self._zk.create(ReassignPartitionsZnode.PATH, data)

    async def _elect(self, *partitions: str) -> None:
        data = PreferredReplicaElectionZnode.encode(map(_key, partitions))
        with suppress(Exception):
            await self._zk.create(PreferredReplicaElectionZnode.PATH, data)

    # Leaders

    async def _shrink(self, partition: str, *options: str) -> Any:
        state = await self._state(partition)
        if state is None:
            return "no state"
        others = [number for number in state[0].isr if number != state[0].leader]
        return await self._proposed(partition, [each for each in state[0].isr if each not in others[-1:]], options)

    async def _expand(self, partition: str, *options: str) -> Any:
        state = await self._state(partition)
        if state is None:
            return "no state"
        topic, index = _key(partition)
        replicas = (await self._assignment(topic)).partitions[index]
        added = [
            number
            for number in replicas
            if number == CONTROLLER or (number in self._brokers and _key(partition) not in self._brokers[number].failed)
            if number not in state[0].isr
        ]
        added += [int(option.removeprefix("with=")) for option in options if option.startswith("with=")]
        return await self._proposed(partition, [*state[0].isr, *added], options)

    async def _propose(self, partition: str, replicas: str, *options: str) -> Any:
        return await self._proposed(partition, _replicas(replicas)[0], options)

    async def _state(self, partition: str) -> tuple[LeaderAndIsr, int] | None:
        topic, index = _key(partition)
        try:
            data, stat = await self._zk.get(PartitionStateZnode.path(topic, index))
        except NoNodeError:
            return None
        return PartitionStateZnode.decode(topic, index, data), stat.version

    async def _proposed(self, partition: str, isr: list[int], options: Iterable[str]) -> Any:
        found = await self._state(partition)
        if found is None:
            return "no state"
        state, version = found
        topic, index = _key(partition)
        topic_id = (await self._assignment(topic)).topic_id
        assert topic_id is not None
        changed = dict(option.split("=") for option in options)
        sender = int(changed.get("from", state.leader))
        asked = AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=state.leader_epoch + int(changed.get("epoch", 0)),
            new_isr_with_epochs=[BrokerState(broker_id=number) for number in isr],
            partition_epoch=version + int(changed.get("version", 0)),
        )
        request = AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self._former.get(sender, 0) + int(changed.get("registration", 0)),
            topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[asked])],
        )
        response = await self._ask(request)
        if response.error_code:
            return _name(response.error_code)
        [result] = response.topics[0].partitions
        if result.error_code:
            return _name(result.error_code)
        return [result.leader_id, result.leader_epoch, result.isr, result.leader_recovery_state, result.partition_epoch]

    async def _prefer(self, *partitions: str) -> Any:
        return await self._elected(0, partitions)

    async def _unclean(self, *partitions: str) -> Any:
        return await self._elected(1, partitions)

    async def _elected(self, kind: int, partitions: Iterable[str]) -> Any:
        wanted: dict[str, list[int]] = {}
        for topic, index in map(_key, partitions):
            wanted.setdefault(topic, []).append(index)
        topics = [TopicPartitions(topic=topic, partitions=each) for topic, each in wanted.items()]
        response = await self._ask(
            ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=ASK_TIMEOUT_MS)
        )
        found = {
            f"{topic.topic}-{each.partition_id}": _name(each.error_code)
            for topic in response.replica_election_results
            for each in topic.partition_result
        }
        return [_name(response.error_code), dict(sorted(found.items()))]

    async def _describe(self) -> Any:
        response = await self._ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return {
            f"{topic.name}-{each.partition_index}": [
                _name(each.error_code),
                each.leader_id,
                sorted(each.isr_nodes),
                each.replica_nodes,
                sorted(each.offline_replicas),
            ]
            for topic in sorted(response.topics, key=lambda topic: topic.name)
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        }

    # The controller

    async def _reelect(self) -> None:
        await self._zk.delete(ControllerZnode.PATH)
        for _ in range(MOST_LOOKS):
            if await self._zk.exists(ControllerZnode.PATH) is not None:
                return
            await asyncio.sleep(LOOK_S)  # sleep: until the broker has seen it
        raise AssertionError("the broker has not become the controller again")

    async def _usurp(self) -> None:
        data, stat = await self._zk.get(ControllerEpochZnode.PATH)
        epoch = ControllerEpochZnode.encode(ControllerEpochZnode.decode(data) + 1)
        taken: list[Operation] = [
            Delete(ControllerZnode.PATH),
            Create(ControllerZnode.PATH, ControllerZnode.encode(USURPER, 0), ephemeral=True),
            Set(ControllerEpochZnode.PATH, epoch, stat.version),
        ]
        await self._zk.multi(taken)

    async def _yield(self) -> None:
        await self._reelect()

    async def _ask(self, request: Any) -> Any:
        if self._connection is None or not self._connection.is_open:
            settings = ConnectionSettings(client_id="script", request_timeout_ms=3 * ASK_TIMEOUT_MS)
            self._connection = await open_connection(*self._stage.controller, settings, self._stage.environment)
        newest = API[request.SCHEMA.api_key].max_version
        return await self._connection.request(request, versions=(0, newest))


def _key(partition: str) -> tuple[str, int]:
    topic, _, index = partition.rpartition("-")
    return topic, int(index)


def _replicas(text: str) -> list[list[int]]:
    return [[int(number) for number in each.split("+")] for each in text.split(",")]


def _name(error_code: int) -> str:
    return next(error.name for error in ErrorCode if error == error_code)
