"""Our controller beside Apache Kafka's in all recorded scenes, also where another broker becomes the controller.

Each scene begins with the znodes that the scenes before it left. What brokers, clients and tools do comes from the
recording, in its order; our controller then has to end with the same leaders and ISRs in the znodes, and with the same
last word to each broker about each of its partitions.

Only ends are compared, without epochs and orders: by that it allows for those of `support.wanted_differences` that are
about the way there (`PASSED_OVER`, `MOVED_AWAY`, `ISR_ORDER`, `DELETED`). `test_recorded_controller` compares the ten
scenes without a failover word by word, `test_beside` scripts with failovers step by step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from golden.cluster.interbroker_scenes import SCENES
from golden.cluster.interbroker_transcript import from_lines
from golden.cluster.test_recorded_controller import CONTROL, RECORDED, Play, decoded
from ottla.cluster import controller_events as events
from ottla.cluster.control_batches import LeaderAndIsrBatch, StopEntry
from ottla.cluster.image import BrokerImage, ClusterImage
from ottla.wire.apis import ApiKey
from ottla.zk.layout import PartitionStateZnode, TopicZnode

TIMED = re.compile(r" *(?P<what>zk|\d+) +-?\d+ ms  (?P<text>.*)")
WRITES = re.compile(r"broker (\d+) writes (\d+)")
SET = re.compile(r"set (\S+) version (\d+) ?(.*)")
CREATE = re.compile(r"create (ephemeral )?(\S+) ?(.*)")
#: What clients asked the controller for, which is not between brokers and so not recorded: in a scene without anything
#: else, and after a registration.
ASKED = {"10-preferred-election": "prefer three-0 three-1 three-2"}
ASKED_AFTER = {275: "unclean two-0"}


class Node(NamedTuple):
    """A znode."""

    data: str
    version: int = 0
    czxid: int = 0
    owner: str = ""


Tree = dict[str, Node]


class Operation(NamedTuple):
    """A change of the znodes, in a transaction, by a broker."""

    zxid: int
    broker: str
    text: str


def timeline(scene: str) -> Iterator[Operation | int]:
    """The changes of the znodes, and the numbers of requests between brokers, in their order."""
    zxid, broker = 0, ""
    for line in (RECORDED / f"{scene}.txt").read_text().splitlines():
        found = TIMED.fullmatch(line)
        if found is not None:
            zxid = 0
            if found["what"] != "zk":
                yield int(found["what"])
                continue
            writes = WRITES.match(found["text"])
            if writes is not None:
                broker, zxid = writes[1], int(writes[2])
        elif zxid and line.startswith("        "):
            yield Operation(zxid, broker, line.strip())


def apply(tree: Tree, change: Operation) -> None:
    if change.text == "end of session":
        for path in [path for path, node in tree.items() if node.owner == change.broker]:
            del tree[path]
        return
    created, changed = CREATE.fullmatch(change.text), SET.fullmatch(change.text)
    if created is not None:
        tree[created[2]] = Node(created[3], 0, change.zxid, change.broker if created[1] else "")
    elif changed is not None and changed[1] in tree:
        tree[changed[1]] = tree[changed[1]]._replace(data=changed[3], version=int(changed[2]))
    elif change.text.startswith("delete "):
        tree.pop(change.text.split()[1], None)


@cache
def tree_before(scene: str) -> Tree:
    """The znodes that the scenes before this one left. What is not changed in the recording is left out."""
    tree: Tree = {}
    for name in SCENES:
        if name == scene:
            break
        for change in timeline(name):
            if isinstance(change, Operation):
                apply(tree, change)
    return tree


def registered(tree: Tree) -> dict[int, events.LiveBroker]:
    found = [path.removeprefix("/brokers/ids/") for path in tree if path.startswith("/brokers/ids/")]
    return {
        int(name): events.LiveBroker(BrokerImage(int(name), ()), tree[f"/brokers/ids/{name}"].czxid) for name in found
    }


def topics(tree: Tree) -> list[events.FoundTopic]:
    names = [path.split("/")[3] for path in tree if path.startswith("/brokers/topics/") and path.count("/") == 3]
    return [found_topic(tree, name) for name in names]


def found_topic(tree: Tree, name: str) -> events.FoundTopic:
    assignment = TopicZnode.decode(name, tree[TopicZnode.path(name)].data.encode())
    states = []
    for index, replicas in sorted(assignment.partitions.items()):
        node = tree.get(PartitionStateZnode.path(name, index))
        found = events.FoundPartitionState(replicas)
        if node is not None:
            read = PartitionStateZnode.decode(name, index, node.data.encode())
            found = events.FoundPartitionState(
                replicas, read.leader, read.leader_epoch, read.isr, node.version, read.is_recovering
            )
        move = events.ReplicaMove(assignment.adding.get(index, ()), assignment.removing.get(index, ()))
        states.append(found._replace(move=move))
    assert assignment.topic_id is not None
    return events.FoundTopic(name, assignment.topic_id, assignment.topic_id, tuple(states), {}, False)


class Failovers:
    """Our controllers, one after the other, in the places of the recorded ones."""

    def __init__(self, scene: str) -> None:
        self.tree = dict(tree_before(scene))
        self.controllers: set[int] = set()
        self.play = Play()
        if "/controller" in self.tree:
            self._elect()
            self.play.effects.clear()
        if scene in ASKED:
            self.play.run(ASKED[scene])

    def _elect(self) -> None:
        controller = json.loads(self.tree["/controller"].data)["brokerid"]
        epoch = int(self.tree["/controller_epoch"].data)
        effects = self.play.effects
        self.play = Play(controller)
        self.play.effects = effects
        self.controllers.add(controller)
        self.play.handle(events.Elected(epoch, registered(self.tree), topics(self.tree), ClusterImage()))

    def follow(self, change: Operation) -> None:
        """Do what our controller has to answer, or sees of this change."""
        before = dict(self.tree)
        apply(self.tree, change)
        created, changed = CREATE.fullmatch(change.text), SET.fullmatch(change.text)
        path = created[2] if created is not None else changed[1] if changed is not None else ""
        if path == "/controller_epoch" and "/controller" in self.tree:
            self._elect()
        elif created is not None and path.startswith("/brokers/ids/"):
            self.play.handle(events.BrokersChanged(registered(self.tree)))
        elif change.text == "end of session" and registered(before) != registered(self.tree):
            if "/controller" in self.tree:
                self.play.handle(events.BrokersChanged(registered(self.tree)))
        elif path.startswith("/brokers/topics/") and path.count("/") == 3:
            self._follow_topic(path.split("/")[3])
        elif created is not None and path.startswith("/admin/delete_topics/"):
            self.play.handle(events.DeletionMarked(path.split("/")[3]))
        if change.zxid in ASKED_AFTER and path.startswith("/brokers/ids/") and created is not None:
            self.play.run(ASKED_AFTER[change.zxid])

    def _follow_topic(self, name: str) -> None:
        found = found_topic(self.tree, name)
        known = self.play.transcript.controller.image.topics.get(name)
        wanted = {
            (name, index): tuple(broker for broker in state.replicas if broker not in state.move.removing)
            for index, state in enumerate(found.partitions)
            if any(state.move)
        }
        if wanted:
            self.play.handle(events.ReassignmentRequested(self.play.transcript._token(), wanted))
        elif known is None or len(known.partitions) < len(found.partitions):
            state = self.play.transcript.controller._state
            states = [
                events.FoundPartitionState(one.replicas, one.leader, one.leader_epoch, one.isr, state.version(name, at))
                for at, one in enumerate(known.partitions if known is not None else ())
            ]
            added = [events.FoundPartitionState(one.replicas) for one in found.partitions[len(states) :]]
            self.play.handle(events.TopicsFound([found._replace(partitions=(*states, *added))]))

    def words(self) -> Words:
        """What ours said last."""
        words: Words = {}
        for effect in self.play.effects:
            note_ours(words, effect)
        return words

    def propose(self, request: Any, response: Any) -> None:
        """An AlterPartition, as its sender would ask our controller, who gave it other epochs."""
        if response.error_code:
            return
        image = self.play.transcript.controller.image
        for topic in request.topics:
            name = image.topic_names[topic.topic_id]
            for partition in topic.partitions:
                index = partition.partition_index
                self.play.handle(
                    events.IsrProposed(
                        self.play.transcript._token(),
                        request.broker_id,
                        request.broker_epoch,
                        name,
                        index,
                        image.topics[name].partitions[index].leader_epoch,
                        self.play.transcript.controller._state.version(name, index),
                        tuple(state.broker_id for state in partition.new_isr_with_epochs),
                        bool(partition.leader_recovery_state),
                    )
                )


Word = tuple[Any, ...]
Words = dict[tuple[int, str, int, str], Word]
"""The last word to a broker about a partition, by kind of request; that a replica was deleted stays said."""


def note(words: Words, receiver: int, api_key: int, one: Any, topic: str) -> None:
    """Note what Apache Kafka's controller says in an entry of a request."""
    key = (receiver, topic, one.partition_index)
    if api_key == ApiKey.STOP_REPLICA:
        if one.delete_partition:
            words[*key, "deleted"] = ()
    elif api_key == ApiKey.LEADER_AND_ISR:
        moved = (tuple(one.adding_replicas), tuple(one.removing_replicas), bool(one.leader_recovery_state))
        words[*key, "LeaderAndIsr"] = (one.leader, sorted(one.isr), tuple(one.replicas), *moved)
    else:
        words[*key, "UpdateMetadata"] = (one.leader, sorted(one.isr), tuple(one.replicas), sorted(one.offline_replicas))


def note_ours(words: Words, effect: events.SendToBroker) -> None:
    for request in effect.requests:
        for one in request.entries:
            key = (effect.broker_id, one.topic, one.partition)
            if isinstance(one, StopEntry):
                if one.is_deletion:
                    words[*key, "deleted"] = ()
                continue
            state = one.state
            plain = (state.leader, sorted(state.isr), state.replicas)
            if isinstance(request, LeaderAndIsrBatch):
                words[*key, "LeaderAndIsr"] = (*plain, one.adding, one.removing, one.is_recovering)
            else:
                words[*key, "UpdateMetadata"] = (*plain, sorted(one.offline))


def states_of(tree: Tree) -> dict[tuple[str, int], Word]:
    return {
        (topic.name, index): (state.leader, sorted(state.isr), state.replicas, any(state.move), state.is_recovering)
        for topic in topics(tree)
        for index, state in enumerate(topic.partitions)
    }


def our_states(play: Play) -> dict[tuple[str, int], Word]:
    state = play.transcript.controller._state
    return {
        (topic.name, index): (
            known.leader,
            sorted(known.isr),
            known.replicas,
            (topic.name, index) in state.moves,
            (topic.name, index) in state.recovering,
        )
        for topic in state.image.topics.values()
        for index, known in enumerate(topic.partitions)
    }


@pytest.mark.spec("R1", "R5", "Z3")
@pytest.mark.parametrize("scene", SCENES)
def test_ours_ends_where_apache_kafkas_ended(scene: str) -> None:
    exchanges = {one.asked: one for one in from_lines(RECORDED / f"{scene}.jsonl") if one.answered}
    theirs: Words = {}
    ours = Failovers(scene)
    for item in timeline(scene):
        if isinstance(item, Operation):
            ours.follow(item)
            continue
        one = exchanges.pop(item, None)
        if one is None:
            continue  # a response, or a request that nobody has answered
        if one.api_key == ApiKey.ALTER_PARTITION:
            ours.propose(decoded(one, is_request=True), decoded(one, is_request=False))
        elif one.api_key == ApiKey.CONTROLLED_SHUTDOWN:
            request = decoded(one, is_request=True)
            ours.play.run(f"shutdown {request.broker_id} {request.broker_epoch}")
        elif one.api_key in CONTROL:
            for topic in decoded(one, is_request=True).topic_states:
                for entry in topic.partition_states:
                    note(theirs, one.receiver, one.api_key, entry, topic.topic_name)
    assert our_states(ours.play) == states_of(ours.tree)
    said = {key: word for key, word in ours.words().items() if key[0] not in ours.controllers}
    assert said == {key: word for key, word in theirs.items() if key[0] not in ours.controllers}
