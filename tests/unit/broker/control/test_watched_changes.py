"""A broker in a tree that others change, too: its membership, and what it follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine

import pytest

from ottla.broker.control.coordination import ClusterSession
from ottla.broker.control.dynamic_settings import DynamicSettings
from ottla.broker.control.membership import Term
from ottla.broker.control.metadata_publisher import NoHost
from ottla.broker.control.plane import ControlPlane
from ottla.broker.control.startup import Startup
from ottla.broker.control.watched_changes import WatchedChanges
from ottla.broker.slices import LoopSlices
from ottla.broker.zookeeper_offsets import OffsetZnodes
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.image import ImageDelta, TopicDelta
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.listeners import Endpoint
from ottla.env.clock import VirtualClock
from ottla.env.randomness import Randomness
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ConnectionLossError, LocalClient, SessionEvent, Watcher
from ottla.zk.layout import ConfigChangeZnode, PreferredReplicaElectionZnode, ReassignPartitionsZnode, TopicZnode
from ottla.zk.store import TreeStore
from ottla.zk.tree import Create, Delete, Operation, Result, Set, Stat

ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
CLOCK = VirtualClock(1_700_000_000_000)
MOST_TURNS = 10_000

pytestmark = pytest.mark.spec("Z3")


class Away(LocalClient):
    """A session whose connection can be lost: before a request, or before its answer."""

    lost = False
    answers_lost = 0
    #: Transactions that are still made before the connection is lost; None for any number.
    left: int | None = None
    #: Transactions that are still answered; the one after them is made, and the connection lost.
    lost_answer_at: int | None = None

    def _check(self, path: str) -> None:
        if self.lost:
            raise ConnectionLossError(path, "away")

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        self._check(path)
        return await super().get(path, watch)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        self._check(path)
        return await super().children(path, watch)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        self._check(path)
        return await super().exists(path, watch)

    async def multi(self, operations: list[Operation]) -> tuple[Result, ...]:  # type: ignore[override]
        self._check(operations[0].path)
        if self.left is not None:
            self.lost = self.left <= 0
            self.left -= 1
        self._check(operations[0].path)
        results = await super().multi(operations)
        if self.lost_answer_at is not None:
            self.lost_answer_at -= 1
            if self.lost_answer_at < 0:
                self.lost = True
                raise ConnectionLossError(operations[0].path, "its answer was lost")
        if self.answers_lost:
            self.answers_lost -= 1
            raise ConnectionLossError(operations[0].path, "its answer was lost")
        return results


class Broker:
    """What follows the tree, and another session in it."""

    def __init__(self, broker_id: int = 7) -> None:
        config = parse_broker_config({"broker.id": str(broker_id)})
        assert isinstance(config, BrokerConfig)
        self.store = TreeStore.open(MemoryDisk(), "/t", CLOCK)
        self.zk = Away(self.store, 1)
        self.other = LocalClient(self.store, 99)
        self.control = ControlPlane(
            ClusterSession(self.zk, is_shared=True, transaction_bytes=2_000),
            config,
            broker_id=broker_id,
            endpoints=[ENDPOINT],
            clock=CLOCK,
            randomness=Randomness(5),
        )
        settings = DynamicSettings(self.zk, config, broker_id, lambda: None)
        self.changes = WatchedChanges(self.zk, self.control, settings, broker_id, CLOCK)
        self.config = config
        self.fatal: list[str] = []
        self.control.membership.on_fatal = self.fatal.append
        self.control.membership.on_rejoined = self.changes.resume
        self.control.on_unknown_outcome = self.changes.look_at_topic

    async def started(self) -> Broker:
        assert await Startup(self.control).start() is None
        self.changes.start()
        await self.until(lambda: bool(self.changes._last_change == -1 and not self.changes._due))
        return self

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(MOST_TURNS):
            if condition():
                return
            await asyncio.sleep(0.001)  # sleep: a turn of the loop and of its timers
        raise AssertionError("waited in vain")

    def notify(self, event: SessionEvent) -> None:
        for listener in self.zk._listeners:
            listener(event)

    def partitions(self, name: str) -> int:
        known = self.control.image.topics.get(name)
        return len(known.partitions) if known is not None else 0

    def data(self, path: str) -> object:
        return json.loads(self.store.tree.get(path).data or b"null")

    async def stop(self) -> None:
        await self.changes.stop()
        await self.control.close()


def run(body: Callable[[Broker], Coroutine[object, object, None]]) -> None:
    async def whole() -> None:
        broker = await Broker().started()
        try:
            await body(broker)
        finally:
            await broker.stop()

    asyncio.run(whole())


def test_after_an_expiry_it_is_a_member_again_and_takes_up_what_was_changed() -> None:
    async def body(broker: Broker) -> None:
        broker.notify(SessionEvent.EXPIRED)
        made = await broker.control.admin.create_topic(TopicSpec("t"))
        assert isinstance(made, TopicRefusal)
        assert made.error is ErrorCode.NOT_CONTROLLER
        broker.zk.expire(2)
        await broker.other.create("/brokers/topics/new", b'{"version":1,"partitions":{"0":[7]}}')
        await broker.until(lambda: broker.partitions("new") == 1)
        assert broker.store.tree.get("/brokers/ids/7").ephemeral_owner == 2
        assert broker.control.membership.term.epoch == 2
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.other.create("/brokers/topics/newer", b'{"version":1,"partitions":{"0":[7]}}')
        await broker.until(lambda: broker.partitions("newer") == 1)
        assert not broker.fatal

    run(body)


def test_a_registration_whose_answer_was_lost_is_recognized() -> None:
    async def body(broker: Broker) -> None:
        broker.zk.answers_lost = 1
        broker.zk.expire(2)
        await broker.until(lambda: not broker.zk.answers_lost)
        # The connection is there again, in the same session.
        broker.notify(SessionEvent.CONNECTED)
        await broker.until(lambda: broker.control.membership.term.epoch == 2)
        assert broker.store.tree.get("/brokers/ids/7").ephemeral_owner == 2
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        assert not broker.fatal

    run(body)


def test_an_election_whose_answer_was_lost_is_recognized() -> None:
    async def body(broker: Broker) -> None:
        broker.zk.answers_lost = 1
        await broker.other.delete("/controller")
        await broker.until(lambda: not broker.zk.answers_lost)
        broker.notify(SessionEvent.CONNECTED)
        # It knows of its election before it has taken office; a change is refused in between, to be tried again.
        await broker.until(lambda: broker.control.controller.controller.epoch == 2 and broker.control.is_controller)
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)

    run(body)


def test_who_is_not_the_controller_any_more_does_not_take_office(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(broker: Broker) -> None:
        control, children = broker.control, broker.zk.children
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def held(path: str, watch: Watcher | None = None) -> list[str]:
            if path == TopicZnode.ROOT:
                reached.set()
                await go_on.wait()
            return await children(path, watch)

        monkeypatch.setattr(broker.zk, "children", held)
        done: list[object] = []
        control.publisher.subscribe(done.append)
        control.on_took_office = lambda: done.append("took office")
        control._elected_again()
        await reached.wait()
        control.membership._not_elected(9)
        go_on.set()
        await broker.until(lambda: not control._tasks)
        reached.clear()
        control._elected_again()
        await broker.until(lambda: not control._tasks)
        assert not reached.is_set()
        assert done == []

    run(body)


def test_a_topic_whose_answer_was_lost_is_taken_up_from_the_tree() -> None:
    async def body(broker: Broker) -> None:
        broker.zk.answers_lost = 1
        made = await broker.control.admin.create_topic(TopicSpec("t"))
        assert isinstance(made, TopicRefusal)
        assert made.error is ErrorCode.REQUEST_TIMED_OUT
        assert "may not have been done" in made.message
        await broker.until(lambda: broker.partitions("t") == 1)

    run(body)


def test_changes_while_the_tree_is_away_are_refused_and_what_is_due_is_looked_at_later() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.until(lambda: "t" in broker.changes._watched)
        broker.zk.lost = True
        await broker.other.create("/brokers/topics/new", b'{"version":1,"partitions":{"0":[7]}}')
        refusals = [
            await broker.control.admin.create_topic(TopicSpec("u")),
            await broker.control.admin.create_partitions("t", 3),
            await broker.control.topic_configs.change("t", lambda _: {"retention.ms": "5"}, validate_only=False),
            await broker.control.admin.delete_topic("t"),
        ]
        assert {refusal.error for refusal in refusals if isinstance(refusal, TopicRefusal)} == {
            ErrorCode.REQUEST_TIMED_OUT
        }
        await broker.until(lambda: broker.changes._running is not None and broker.changes._running.done())
        assert broker.partitions("new") == 0
        broker.zk.lost = False
        broker.changes.resume(is_new_session=False)
        await broker.until(lambda: broker.partitions("new") == 1)

    run(body)


def test_what_waits_for_zookeeper_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: Broker) -> None:
        for away in (1, 2):
            broker.zk.lost = True
            for name in ("a", "b", "c") * 3:  # as after each election that was asked for and failed
                broker.changes.look_at_topic(name)
                await broker.until(lambda: not broker.changes._running or broker.changes._running.done())
            assert sum("are read when ZooKeeper is there" in each for each in caplog.messages) == away
            broker.zk.lost = False
            broker.notify(SessionEvent.CONNECTED)
            await broker.until(lambda: not broker.changes._due)

    run(body)


def test_another_controller_is_fatal_and_nothing_is_written_after_it() -> None:
    async def body(broker: Broker) -> None:
        await broker.other.multi(
            [
                Delete("/controller"),
                Create("/controller", b'{"version":2,"brokerid":8,"timestamp":"1"}', ephemeral=True),
                Set("/controller_epoch", b"2"),
            ]
        )
        made = await broker.control.admin.create_topic(TopicSpec("t"))
        assert isinstance(made, TopicRefusal)
        assert made.error is ErrorCode.NOT_CONTROLLER
        await broker.until(lambda: bool(broker.fatal))
        assert "8" in broker.fatal[0]
        assert "/brokers/topics/t" not in broker.store.tree.nodes

    run(body)


def test_a_broker_that_took_our_id_is_fatal() -> None:
    async def body(broker: Broker) -> None:
        broker.zk.expire(2)
        await broker.other.create("/brokers/ids/7", b"{}", ephemeral=True)
        await broker.until(lambda: bool(broker.fatal))
        assert "a broker with id 7 is registered" in broker.fatal[0]

    run(body)


def test_the_controller_s_node_is_deleted_to_have_an_election() -> None:
    async def body(broker: Broker) -> None:
        await broker.other.delete("/controller")
        await broker.until(lambda: broker.control.membership.term.epoch == 2)
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.other.delete("/controller")
        await broker.until(lambda: broker.control.membership.term.epoch == 3)

    run(body)


def test_another_broker_in_the_tree_keeps_us_out() -> None:
    async def whole() -> None:
        broker = Broker()
        registration = b'{"version":1,"host":"elsewhere","port":9,"jmx_port":-1,"timestamp":"1"}'
        await broker.other.create("/brokers/ids", make_parents=True)
        await broker.other.create("/brokers/ids/8", registration, ephemeral=True)
        refusal = await Startup(broker.control).start()
        assert refusal is not None
        assert "Another broker is registered in this coordination metadata, 8 at elsewhere:9" in refusal.message
        assert "/brokers/ids/7" not in broker.store.tree.nodes

    asyncio.run(whole())


def test_a_deletion_that_was_interrupted_goes_on_with_the_connection() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", 3)), TopicCreated)
        broker.zk.answers_lost = 1  # of the mark
        refusal = await broker.control.admin.delete_topic("t")
        assert refusal is not None
        await broker.until(lambda: "/admin/delete_topics/t" not in broker.store.tree.nodes)
        assert "/brokers/topics/t" not in broker.store.tree.nodes
        assert broker.partitions("t") == 0

    run(body)


def made_anew_after_the_deletion(broker: Broker, *, lose_answer: bool = False) -> None:
    """Have a tool create the topic t again as soon as its znodes are gone, before this broker learns that they are."""
    multi = broker.zk.multi

    async def followed(operations: list[Operation]) -> tuple[Result, ...]:
        results = await multi(operations)
        if Delete("/brokers/topics/t") in operations:
            broker.zk.multi = multi  # type: ignore[method-assign]
            await broker.other.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[7],"1":[7]}}')
            if lose_answer:
                raise ConnectionLossError("/brokers/topics/t", "its answer was lost")
        return results

    broker.zk.multi = followed  # type: ignore[method-assign]


async def is_served_with_two_partitions(broker: Broker) -> None:
    await broker.until(lambda: broker.partitions("t") == 2)
    await broker.until(lambda: not broker.changes._due)
    await broker.control.controller.settled()
    assert broker.partitions("t") == 2
    assert broker.data("/brokers/topics/t/partitions/1/state")["leader"] == 7  # type: ignore[index]
    assert "/admin/delete_topics/t" not in broker.store.tree.nodes


def test_marks_read_during_a_deletion_do_not_delete_the_topic_made_after_it() -> None:
    """The mark is seen while its deletion is under way; when the controller comes to it, the topic is another."""

    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.until(lambda: not broker.changes._due and "t" in broker.changes._watched)
        goes_on = asyncio.Event()

        async def end(delta: ImageDelta) -> None:
            await goes_on.wait()

        broker.control.publisher.host.end = end  # type: ignore[method-assign]
        made_anew_after_the_deletion(broker)
        deletion = asyncio.create_task(broker.control.admin.delete_topic("t"))
        # The mark is read, and its deletion is queued behind the one that is under way.
        await broker.until(lambda: bool(broker.control.controller._events))
        goes_on.set()
        assert await deletion is None
        await is_served_with_two_partitions(broker)

    run(body)


def test_a_topic_made_while_the_outcome_of_a_deletion_is_unknown_is_served() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.until(lambda: not broker.changes._due and "t" in broker.changes._watched)
        made_anew_after_the_deletion(broker, lose_answer=True)
        assert await broker.control.admin.delete_topic("t") is not None
        await is_served_with_two_partitions(broker)

    run(body)


@pytest.mark.parametrize("partitions", [1, 100])
def test_a_deletion_whose_mark_is_gone_leaves_the_znodes(partitions: int) -> None:
    """Without the mark the topic of that name may be a later one; also when several transactions are needed."""

    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", partitions)), TopicCreated)
        await broker.until(lambda: not broker.changes._due and "t" in broker.changes._watched)
        topic_id = broker.control.image.topics["t"].topic_id

        async def end(delta: ImageDelta) -> None:
            await broker.other.delete("/admin/delete_topics/t")

        broker.control.publisher.host.end = end  # type: ignore[method-assign]
        refusal = await broker.control.admin.delete_topic("t")
        assert refusal is not None
        assert refusal.error is ErrorCode.REQUEST_TIMED_OUT
        assert "/admin/delete_topics/t, was removed before its end" in refusal.message
        broker.control.publisher.host = NoHost()
        await broker.until(lambda: broker.partitions("t") == partitions)
        assert broker.control.image.topics["t"].topic_id == topic_id
        assert await broker.control.admin.delete_topic("t") is None, "the cure that the refusal names"

    run(body)


def test_a_deletion_by_id_leaves_a_later_topic_of_the_same_name() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        former = broker.control.image.topics["t"].topic_id
        assert await broker.control.admin.delete_topic("t", former) is None
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        refusal = await broker.control.admin.delete_topic("t", former)
        assert refusal is not None
        assert refusal.error is ErrorCode.UNKNOWN_TOPIC_ID
        assert broker.partitions("t") == 1

    run(body)


def test_large_changes_are_made_in_several_transactions() -> None:
    async def body(broker: Broker) -> None:
        before = broker.store.tree.last_zxid
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", 100)), TopicCreated)
        assert broker.store.tree.last_zxid > before + 5
        assert len(broker.store.tree.get("/brokers/topics/t/partitions").children) == 100

    run(body)


def test_a_look_that_failed_is_made_again_although_the_connection_came_back_during_another() -> None:
    async def body(broker: Broker) -> None:
        changes, looked = broker.changes, []
        goes_on = asyncio.Event()

        async def look(path: str) -> bool:
            looked.append(path)
            if path == "/fails" and looked.count(path) == 1:
                changes._due[path] = None
                return False
            if path == "/waits":
                await goes_on.wait()
            return True

        changes._look = look  # type: ignore[method-assign]
        changes._due.update({"/fails": None, "/waits": None})
        changes._wake()
        await broker.until(lambda: "/waits" in looked)
        changes.resume(is_new_session=False)
        goes_on.set()
        await broker.until(lambda: looked.count("/fails") == 2)

    run(body)


@pytest.mark.parametrize("answer_is_lost", [False, True])
@pytest.mark.parametrize("change", ["create", "grow", "delete"])
def test_a_large_change_that_is_interrupted_anywhere_is_finished(change: str, answer_is_lost: bool) -> None:
    async def interrupted(broker: Broker, transactions: int) -> bool:
        """Whether the change was interrupted after so many transactions; it is whole in the end."""
        topics = broker.control.admin
        before = {"create": 0, "grow": 10, "delete": 40}[change]
        if before:
            assert isinstance(await topics.create_topic(TopicSpec("t", before)), TopicCreated)
            await broker.until(lambda: not broker.changes._due and "t" in broker.changes._watched)
        broker.zk.left = transactions
        broker.zk.answers_lost = 0
        if answer_is_lost:
            broker.zk.left, broker.zk.lost_answer_at = None, transactions
        if change == "create":
            made = await topics.create_topic(TopicSpec("t", 30))
            refusal = made if isinstance(made, TopicRefusal) else None
        elif change == "grow":
            refusal = await topics.create_partitions("t", 30)
        else:
            refusal = await topics.delete_topic("t")
        broker.zk.lost, broker.zk.left, broker.zk.lost_answer_at = False, None, None
        broker.changes.resume(is_new_session=False)
        if refusal is None:
            assert broker.partitions("t") == (0 if change == "delete" else 30)
            return False
        assert refusal.error is ErrorCode.REQUEST_TIMED_OUT
        begun = transactions > 0 or answer_is_lost
        wanted = {"create": 30, "grow": 30, "delete": 0}[change] if begun else before
        await broker.until(lambda: broker.partitions("t") == wanted and is_whole(broker, wanted))
        await broker.until(lambda: not broker.control.controller.controller.deleting)
        if not wanted:
            # Its name may be used again.
            assert isinstance(await topics.create_topic(TopicSpec("t")), TopicCreated)
        return True

    def is_whole(broker: Broker, count: int) -> bool:
        nodes = broker.store.tree.nodes
        if count:
            return all(f"/brokers/topics/t/partitions/{index}/state" in nodes for index in range(count))
        return not [path for path in nodes if path.startswith(("/brokers/topics/t", "/admin/delete_topics/t"))]

    async def whole() -> None:
        for transactions in range(100):
            broker = await Broker().started()
            again = await interrupted(broker, transactions)
            await broker.stop()
            if not again:
                assert transactions > 2, "it took several transactions"
                return
        raise AssertionError("it never ended")

    asyncio.run(whole())


def test_old_notifications_are_removed_and_those_of_others_not_followed() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.other.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
        for entity in ("users/u", "brokers/99", "topics/t"):
            data = b'{"version":2,"entity_path":"%s"}' % entity.encode()
            await broker.other.create("/config/changes/config_change_", data, sequential=True)
        await broker.other.create("/config/changes/other", b"")
        await broker.until(lambda: broker.control.image.topics["t"].configs == {"retention.ms": "5"})
        await broker.until(lambda: broker.changes._last_change == 2)
        # Their age is that by ZooKeeper's clock; the broker's own may be wrong.
        settings = DynamicSettings(broker.other, broker.config, 7, lambda: None)
        wrong = VirtualClock(CLOCK.now_ms() + 16 * 60 * 1000)
        later = WatchedChanges(broker.other, broker.control, settings, 7, wrong)
        later.start()
        await broker.until(lambda: later._last_change == 2)
        assert len(broker.store.tree.get("/config/changes").children) == 4
        CLOCK.advance(16 * 60 * 1000)
        await broker.other.create("/config/changes/config_change_", data, sequential=True)
        await later.stop()
        later = WatchedChanges(broker.other, broker.control, settings, 7, wrong)
        later.start()
        left = {"other", "config_change_0000000004"}
        await broker.until(lambda: broker.store.tree.get("/config/changes").children == left)
        await later.stop()

    run(body)


def test_settings_of_a_topic_that_two_brokers_change() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.other.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
        # Another broker has written it, and its notification has not come yet.
        change = {"segment.ms": "6"}
        refusal = await broker.control.topic_configs.change("t", lambda now: {**now, **change}, validate_only=False)
        assert refusal is None
        assert broker.control.image.topics["t"].configs == {"retention.ms": "5", "segment.ms": "6"}

    run(body)


def test_settings_that_change_before_this_broker_has_heard_of_the_topic() -> None:
    """It reads the settings when it gets its roles, and the image has the topic later."""

    async def body(broker: Broker) -> None:
        made = await broker.control.admin.create_topic(TopicSpec("t"))
        assert isinstance(made, TopicCreated)
        topic = broker.control.image.topics["t"]
        broker.control.image.topics = {}
        broker.control.topic_configs.unheard["t"] = {}
        await broker.other.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
        await broker.control.topic_configs.reload("t")
        broker.control.publisher.publish(ImageDelta((TopicDelta(None, topic),)))
        broker.control.topic_configs.note("t")
        await broker.until(lambda: broker.control.image.topics["t"].configs == {"retention.ms": "5"})

    run(body)


def test_settings_whose_notifications_were_removed_before_this_broker_was_back() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        await broker.other.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
        await broker.other.create("/config/brokers/7", b'{"version":1,"config":{"message.max.bytes":"77"}}')
        late = VirtualClock(CLOCK.now_ms())
        settings = DynamicSettings(broker.zk, broker.config, 7, lambda: None)
        changes = WatchedChanges(broker.zk, broker.control, settings, 7, late)
        late.advance(ConfigChangeZnode.EXPIRATION_MS + 1)
        changes.start()
        await broker.until(lambda: broker.control.image.topics["t"].configs == {"retention.ms": "5"})
        assert broker.config.get_int("message.max.bytes") == 77
        await changes.stop()

    run(body)


def test_a_topic_that_a_tool_of_old_has_grown_keeps_its_id() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        topic_id = broker.control.image.topics["t"].topic_id
        await broker.other.set("/brokers/topics/t", b'{"version":1,"partitions":{"1":[7],"0":[7]}}')
        await broker.until(lambda: broker.partitions("t") == 2)
        assert broker.control.image.topics["t"].topic_id == topic_id
        assert TopicZnode.decode("t", broker.store.tree.get("/brokers/topics/t").data).topic_id == topic_id

    run(body)


def test_tools_are_answered_by_removing_their_nodes(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        for _ in range(2):
            moved = ReassignPartitionsZnode.encode({("t", 0): [8, 8], ("t", 1): [7], ("t", -1): [7], ("none", 0): [7]})
            await broker.other.create(ReassignPartitionsZnode.PATH, moved)
            elected = PreferredReplicaElectionZnode.encode([("t", 0)])
            await broker.other.create(PreferredReplicaElectionZnode.PATH, elected)
            await broker.until(lambda: broker.store.tree.get("/admin").children == {"delete_topics"})
        await broker.other.create(ReassignPartitionsZnode.PATH, ReassignPartitionsZnode.encode({("t", 0): [7]}))
        await broker.until(lambda: broker.store.tree.get("/admin").children == {"delete_topics"})

    with caplog.at_level("ERROR"):
        run(body)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2 * 4
    duplicate = "Duplicate replica ids in partition reassignment replica list: [8, 8]"
    assert messages[0] == f"partition t-0 stays as it is: {duplicate}"
    assert [name in text for name, text in zip(("t-1", "t--1", "none-0"), messages[1:4], strict=True)] == [True] * 3


def test_a_request_of_a_tool_that_makes_no_sense_is_left_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: Broker) -> None:
        await broker.other.create(ReassignPartitionsZnode.PATH, b"[")
        await broker.until(lambda: bool(caplog.records))
        await broker.other.set(ReassignPartitionsZnode.PATH, b'{"version":1,"partitions":[]}')
        await broker.until(lambda: broker.store.tree.get("/admin").children == {"delete_topics"})

    with caplog.at_level("ERROR"):
        run(body)
    assert "/admin/reassign_partitions holds no JSON" in caplog.records[0].getMessage()


def losing(broker: Broker, when: Callable[[int], bool]) -> None:
    """Lose the connection before those transactions, counted from 1, of which `when` says so."""
    count = 0
    multi = broker.zk.multi

    async def counted(operations: list[Operation]) -> tuple[Result, ...]:
        nonlocal count
        count += 1
        if when(count):
            raise ConnectionLossError(operations[0].path, "lost")
        return await multi(operations)

    broker.zk.multi = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("done", [1, 2, 3, 5])
def test_a_deletion_interrupted_between_its_transactions_is_finished_by_the_next_start(done: int) -> None:
    """The mark goes last: without it the topic would be back, empty."""

    async def whole() -> None:
        broker = await Broker().started()
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", 100)), TopicCreated)
        await broker.changes.stop()
        losing(broker, lambda count: count > done + 1)  # the first makes the mark
        refusal = await broker.control.admin.delete_topic("t")
        assert refusal is not None
        assert refusal.error is ErrorCode.REQUEST_TIMED_OUT
        # The broker ends here, and its session some time later.
        broker.zk.expire(3)
        broker.store.expire_session(3)
        again = ControlPlane(
            ClusterSession(LocalClient(broker.store, 4)),
            broker.config,
            broker_id=7,
            endpoints=[ENDPOINT],
            clock=CLOCK,
            randomness=Randomness(6),
        )
        assert await Startup(again).start() is None
        assert "t" not in again.image.topics
        assert "/brokers/topics/t" not in broker.store.tree.nodes
        assert "/admin/delete_topics/t" not in broker.store.tree.nodes
        await again.close()

    asyncio.run(whole())


def test_a_deletion_that_a_tool_asked_for_goes_on_with_the_connection() -> None:
    async def body(broker: Broker) -> None:
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        losing(broker, lambda count: count == 1)
        await broker.other.create("/admin/delete_topics/t")
        await broker.until(lambda: broker.partitions("t") == 0)
        await broker.until(lambda: broker.changes._running is not None and broker.changes._running.done())
        broker.notify(SessionEvent.CONNECTED)
        await broker.until(lambda: "/admin/delete_topics/t" not in broker.store.tree.nodes)
        assert "/brokers/topics/t" not in broker.store.tree.nodes
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)

    run(body)


def test_a_topic_found_while_an_election_goes_on_is_taken_up_after_it() -> None:
    async def body(broker: Broker) -> None:
        membership = broker.control.membership
        term, membership.term = membership.term, Term()
        await broker.other.create("/brokers/topics/new", b'{"version":1,"partitions":{"0":[7]}}')
        await broker.until(lambda: bool(broker.changes._due))
        await broker.until(lambda: broker.changes._running is not None and broker.changes._running.done())
        membership.term = term
        broker.notify(SessionEvent.CONNECTED)
        await broker.until(lambda: broker.partitions("new") == 1)

    run(body)


def test_an_election_that_another_disturbs_is_tried_again() -> None:
    async def body(broker: Broker) -> None:
        multi, disturbed = broker.zk.multi, 0

        async def disturbing(operations: list[Operation]) -> tuple[Result, ...]:
            nonlocal disturbed
            if disturbed < 2 and any(isinstance(each, Set) and each.path == "/controller_epoch" for each in operations):
                disturbed += 1
                await broker.other.set("/controller_epoch", b"%d" % (10 + disturbed))
            return await multi(operations)

        broker.zk.multi = disturbing  # type: ignore[method-assign]
        broker.zk.expire(2)
        await broker.until(lambda: broker.control.membership.term.epoch == 13)
        disturbed = 1
        await broker.other.delete("/controller")
        await broker.until(lambda: broker.control.membership.term.epoch == 13)
        await broker.until(lambda: "/controller" in broker.store.tree.nodes)
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t")), TopicCreated)
        assert not broker.fatal

    run(body)


def test_positions_of_a_new_group_that_come_together_are_all_kept() -> None:
    """Over the wire others make the same parents in the meantime."""

    async def body(broker: Broker) -> None:
        class Slow(LocalClient):
            async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
                found = await super().exists(path, watch)
                await asyncio.sleep(0)
                return found

        offsets = OffsetZnodes(Slow(broker.store, 5), LoopSlices(VirtualClock().monotonic_ms))
        told = await asyncio.gather(*(offsets.commit("g", [("t", index, 40 + index)]) for index in range(5)))
        assert told == [[ErrorCode.NONE]] * 5
        assert [await offsets.fetch("g", "t", index) for index in range(5)] == [40, 41, 42, 43, 44]

    run(body)


def test_damaged_settings_do_not_keep_from_the_changes_after_them(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: Broker) -> None:
        for name in ("a", "t"):
            assert isinstance(await broker.control.admin.create_topic(TopicSpec(name)), TopicCreated)
        await broker.other.set("/config/topics/a", b"{")
        await broker.other.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
        await broker.other.create("/config/brokers/7", b"[")
        for entity in ("topics/a", "brokers/7", "topics/t"):
            data = ConfigChangeZnode.encode(entity)
            await broker.other.create(ConfigChangeZnode.PREFIX, data, sequential=True)
        await broker.until(lambda: broker.control.image.topics["t"].configs == {"retention.ms": "5"})
        await broker.until(lambda: broker.changes._last_change == 2)
        # The same after a time in which the changes are not known.
        await broker.other.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"6"}}')
        late = VirtualClock(CLOCK.now_ms())
        settings = DynamicSettings(broker.zk, broker.config, 7, lambda: None)
        changes = WatchedChanges(broker.zk, broker.control, settings, 7, late)
        late.advance(ConfigChangeZnode.EXPIRATION_MS + 1)
        changes.start()
        await broker.until(lambda: broker.control.image.topics["t"].configs == {"retention.ms": "6"})
        await broker.until(lambda: not changes._is_all_due)
        await changes.stop()

    run(body)
    assert "/config/topics/a" in caplog.text
    assert "/config/brokers/7" in caplog.text
