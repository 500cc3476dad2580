"""`ottla serve` over a ZooKeeper, Apache's and ours: its place in the tree, and what others change there."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ElectionType, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from interop.zookeeper.brokers.conftest import SHORT_SESSION
from interop.zookeeper.conftest import Server
from support.controller import wait_until_all_are_known
from support.ottla_server import OttlaServer
from support.ports import free_port
from support.processes import ServerDied, ServerProcess
from support.proxy import Proxy
from support.waiting import wait_until

Serve = Callable[..., OttlaServer]

pytestmark = [pytest.mark.slow, pytest.mark.spec("Z2", "Z3")]


def admin(server: OttlaServer) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


def make(server: OttlaServer, name: str, partitions: int = 1, timeout_s: int = 60, **config: str) -> None:
    asker = admin(server)
    asker.create_topics([NewTopic(name, partitions, 1, config=config)], operation_timeout=timeout_s)[name].result(90)


def delete(server: OttlaServer, name: str) -> None:
    asker = admin(server)
    asker.delete_topics([name], operation_timeout=60)[name].result(90)


def partitions(server: OttlaServer, name: str) -> int:
    return partitions_of_all(server).get(name, 0)


def partitions_of_all(server: OttlaServer) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in admin(server).list_topics(timeout=60).topics.items()}


def leaders(server: OttlaServer, name: str) -> list[int]:
    found = admin(server).list_topics(name, timeout=60).topics[name].partitions
    return [partition.leader for _, partition in sorted(found.items())]


def setting(server: OttlaServer, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    asker = admin(server)
    return asker.describe_configs([resource])[resource].result(60)[name].value


def send(server: OttlaServer, topic: str, *values: str, partition: int = -1) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(120) == 0
    assert not failed


def read(server: OttlaServer, topic: str, count: int, group: str = "g") -> list[str]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[str] = []

    def polled() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
        return len(values) >= count

    try:
        wait_until(polled, lambda: f"{count} records of {topic}, have {values}")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(values)


def node(tree: KazooClient, path: str) -> dict[str, object]:
    value = json.loads(tree.get(path)[0])
    assert isinstance(value, dict)
    return value


def test_a_broker_is_in_the_tree_while_it_lives(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides={"broker.id": "7", "broker.rack": "r1"})
    assert node(tree, "/brokers/ids/7")["endpoints"] == [f"PLAINTEXT://127.0.0.1:{server.port}"]
    assert node(tree, "/controller")["brokerid"] == 7
    assert tree.get("/controller_epoch")[0] == b"1"
    assert tree.exists("/brokers/ids/7").ephemeralOwner != 0
    make(server, "t", 3, **{"retention.ms": "5"})
    assert node(tree, "/brokers/topics/t")["partitions"] == {"0": [7], "1": [7], "2": [7]}
    assert node(tree, "/brokers/topics/t/partitions/2/state")["leader"] == 7
    assert node(tree, "/config/topics/t")["config"] == {"retention.ms": "5"}
    send(server, "t", "a", "b")
    assert read(server, "t", 2) == ["a", "b"]
    assert not list(server.data.glob("ottla-tree.*"))
    server.stop()
    assert tree.get_children("/brokers/ids") == []
    assert tree.exists("/controller") is None
    server.start()
    assert tree.get("/controller_epoch")[0] == b"2"
    assert setting(server, "t", "retention.ms") == "5"
    assert read(server, "t", 2, "another") == ["a", "b"]
    delete(server, "t")
    assert tree.exists("/brokers/topics/t") is None
    assert tree.get_children("/admin/delete_topics") == []


def test_ids_are_generated_in_the_tree(serve: Serve, tree: KazooClient) -> None:
    tree.create("/brokers/seqid", makepath=True)
    tree.set("/brokers/seqid", b"")
    server = serve()
    assert tree.get_children("/brokers/ids") == ["1002"]
    server.stop()
    server.start()
    assert tree.get_children("/brokers/ids") == ["1002"]


def test_others_learn_of_its_death_and_a_new_one_with_its_id_takes_over(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides=SHORT_SESSION)
    make(server, "t", 2, **{"retention.ms": "77000"})
    send(server, "t", "lost with its disk")
    told: list[object] = []
    tree.get_children("/brokers/ids", watch=told.append)
    tree.get("/controller", watch=told.append)
    server.kill9()
    wait_until(lambda: len(told) == 2, "the news of its death")
    assert tree.get_children("/brokers/ids") == []
    shutil.rmtree(server.data)
    server.start()
    assert partitions(server, "t") == 2
    assert setting(server, "t", "retention.ms") == "77000"
    # What it had alone is not replaced by empty logs before somebody asks for it.
    assert leaders(server, "t") == [-1, -1]
    assert "this broker has no log of it" in server.server.stderr
    asker = admin(server)
    asker.elect_leaders(ElectionType.UNCLEAN).result(90)
    wait_until(lambda: leaders(server, "t") == [7, 7], "the unclean election")
    send(server, "t", "new", partition=1)
    assert read(server, "t", 1) == ["new"]


def test_a_broker_that_was_killed_waits_for_its_old_session(serve: Serve, tree: KazooClient) -> None:
    # Longer than a busy machine takes to start the next.
    server = serve(overrides={"broker.id": "7", "zookeeper.session.timeout.ms": "15000"})
    before = tree.exists("/brokers/ids/7").ephemeralOwner
    server.kill9()
    server.start()
    assert tree.exists("/brokers/ids/7").ephemeralOwner not in (0, before)
    assert "waiting up to" in server.server.stderr


def test_a_second_broker_joins_and_one_of_the_same_id_is_refused_with_cause_and_cure(
    serve: Serve, tree: KazooClient, address: str, tmp_path
) -> None:
    first = serve(overrides={"broker.id": "7"})

    def other(name: str, broker_id: int, **overrides: str) -> OttlaServer:
        arguments = ["--zookeeper", address, "--id", str(broker_id)]
        return OttlaServer(tmp_path / name, arguments=arguments, overrides=overrides)

    # It waits as long as its session lasts for the other to go. The second keeps its own on a busy machine.
    same = other("same", 7, **{"zookeeper.session.timeout.ms": "500"})
    with pytest.raises(ServerDied):
        same.start()
    assert "a broker with id 7 is registered at 127.0.0.1:" in same.server.stderr
    second = other("second", 8)
    second.start()
    try:
        assert sorted(tree.get_children("/brokers/ids")) == ["7", "8"]
        assert json.loads(tree.get("/controller")[0])["brokerid"] == 7
        wait_until_all_are_known([first.bootstrap, second.bootstrap])
        make(first, "both", partitions=4)
        wait_until(lambda: partitions(second, "both") == 4, "the controller's word")
        leaders = {json.loads(tree.get(f"/brokers/topics/both/partitions/{n}/state")[0])["leader"] for n in range(4)}
        assert leaders == {7, 8}
    finally:
        second.stop()


def test_no_zookeeper_is_refused_with_cause_and_cure(tmp_path) -> None:
    port = free_port()
    server = OttlaServer(
        tmp_path,
        arguments=["--zookeeper", f"127.0.0.1:{port}"],
        overrides={"zookeeper.connection.timeout.ms": "300"},
    )
    with pytest.raises(ServerDied):
        server.start()
    told = server.server.stderr
    assert f"No ZooKeeper could be used at 127.0.0.1:{port} within 300 ms (Connection refused)" in told
    assert "leave it out (-c zookeeper.connect=)" in told
    assert "Traceback" not in told
    assert len(told.splitlines()) == 1


def test_a_broker_that_waits_can_be_stopped(serve: Serve, tree: KazooClient, address: str, tmp_path) -> None:
    serve(overrides={"broker.id": "7"})
    waiting = {"for the former session": address, "for ZooKeeper": f"127.0.0.1:{free_port()}"}
    for what, where in waiting.items():
        server = OttlaServer(tmp_path / what, arguments=["--zookeeper", where, "--id", "7"])
        process = ServerProcess("ottla", server.command(), server.folder)
        wait_until(lambda process=process: "ottla.broker" in process.stderr, "the broker that waits")
        assert process.terminate(60) == 1
        assert "stopped before it was ready" in process.stderr
        assert "Traceback" not in process.stderr
    assert tree.get_children("/brokers/ids") == ["7"]


def test_a_zookeeper_that_hangs_lets_the_broker_stop(zookeeper: Server, serve: Serve, address: str) -> None:
    with Proxy(zookeeper.port) as proxy:
        server = serve(zookeeper=f"{proxy.bootstrap}/{address.partition('/')[2]}", overrides=SHORT_SESSION)
        make(server, "t", 1)
        send(server, "t", "before")
        assert read(server, "t", 1) == ["before"]
        proxy.hang()
        send(server, "t", "meanwhile")
        assert read(server, "t", 1) == ["meanwhile"]
        assert server.stop() == 0
        assert "Traceback" not in server.server.stderr


def test_a_server_of_the_list_that_goes_away_is_replaced_within_the_session(
    zookeeper: Server, serve: Serve, address: str, tree: KazooClient
) -> None:
    with Proxy(zookeeper.port) as first, Proxy(zookeeper.port) as second:
        servers = f"{first.bootstrap},{second.bootstrap}/{address.partition('/')[2]}"
        server = serve(zookeeper=servers, overrides={"broker.id": "7"})
        owner = tree.exists("/brokers/ids/7").ephemeralOwner
        used, other = (first, second) if first.connections else (second, first)
        used.refuse(3600)
        wait_until(lambda: "connected to ZooKeeper again" in server.server.stderr, "the other server")
        assert other.connections
        make(server, "t", 1)
        tree.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[7]}}')
        wait_until(lambda: partitions(server, "old") == 1, "the topic made in the tree")
        assert tree.exists("/brokers/ids/7").ephemeralOwner == owner
        assert tree.get("/controller_epoch")[0] == b"1"


def test_brokers_that_register_and_go_are_known(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides={"broker.id": "7"})
    registration = (
        b'{"version":5,"host":"elsewhere","port":9,"endpoints":["PLAINTEXT://elsewhere:9"],"jmx_port":-1,'
        b'"timestamp":"1","listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}'
    )

    def known() -> set[int]:
        return set(admin(server).list_topics(timeout=60).brokers)

    for name in ("8", "9"):
        tree.create(f"/brokers/ids/{name}", registration, ephemeral=True)
    wait_until(lambda: known() == {7, 8, 9}, "the other brokers")
    tree.delete("/brokers/ids/8")
    tree.delete("/brokers/ids/9")
    wait_until(lambda: known() == {7}, "the end of the others")
    make(server, "t", 1)


def test_an_address_that_makes_no_sense_is_refused(tmp_path) -> None:
    server = OttlaServer(tmp_path, arguments=["--zookeeper", "127.0.0.1:zk"])
    with pytest.raises(ServerDied):
        server.start()
    assert "zookeeper.connect: '127.0.0.1:zk'" in server.server.stderr


def test_settings_in_the_directory_are_not_lost_to_an_empty_zookeeper(tmp_path, address: str) -> None:
    embedded = OttlaServer(tmp_path).start()
    embedded.stop()
    server = OttlaServer(tmp_path, arguments=["--zookeeper", address])
    with pytest.raises(ServerDied):
        server.start()
    assert "topics would lose their settings" in server.server.stderr
    for path in server.data.glob("ottla-tree.*"):
        path.unlink()
    server.start()
    server.stop()


def test_without_zookeeper_records_are_served_and_changes_refused(
    zookeeper: Server, serve: Serve, address: str
) -> None:
    with Proxy(zookeeper.port) as proxy:
        chroot = address.partition("/")[2]
        server = serve(zookeeper=f"{proxy.bootstrap}/{chroot}", overrides={"broker.id": "7"})
        make(server, "t", 1)
        send(server, "t", "before")
        assert read(server, "t", 1) == ["before"]
        proxy.refuse(3600)
        wait_until(lambda: "the connection to ZooKeeper is lost" in server.server.stderr, "the log")
        send(server, "t", "meanwhile")
        assert read(server, "t", 1) == ["meanwhile"]
        with pytest.raises(Exception, match=r"ZooKeeper could not be asked.*Connection refused"):
            make(server, "u", timeout_s=5)
        producer = Producer({"bootstrap.servers": server.bootstrap})
        producer.produce("made-on-demand", b"waits")
        assert producer.flush(1) == 1
        proxy.heal()
        wait_until(lambda: "connected to ZooKeeper again" in server.server.stderr, "the log")
        assert producer.flush(120) == 0
        assert read(server, "made-on-demand", 1, "gd") == ["waits"]
        wait_until(lambda: can_make(server, "u"), "topics that can be made")
        send(server, "u", "x")
        assert read(server, "u", 1, "gu") == ["x"]
        assert "Traceback" not in server.server.stderr


def can_make(server: OttlaServer, name: str) -> bool:
    try:
        make(server, name)
    except Exception as error:
        return "already exists" in str(error)
    return True


def test_a_session_that_expires_is_followed_by_another_registration_and_election(
    zookeeper: Server, serve: Serve, address: str, tree: KazooClient
) -> None:
    with Proxy(zookeeper.port) as proxy:
        chroot = address.partition("/")[2]
        server = serve(zookeeper=f"{proxy.bootstrap}/{chroot}", overrides=SHORT_SESSION)
        make(server, "t", 1)
        before = tree.exists("/brokers/ids/7").ephemeralOwner
        proxy.refuse(3600)
        wait_until(lambda: tree.exists("/brokers/ids/7") is None, "the end of the session")
        # Made by an old tool while the broker knew nothing of the tree.
        tree.create("/brokers/topics/meanwhile", b'{"version":1,"partitions":{"0":[7]}}')
        send(server, "t", "x")
        proxy.heal()
        wait_until(lambda: tree.exists("/brokers/ids/7") is not None, "registration")
        assert tree.exists("/brokers/ids/7").ephemeralOwner not in (0, before)
        assert node(tree, "/controller")["brokerid"] == 7
        assert tree.get("/controller_epoch")[0] == b"2"
        wait_until(lambda: partitions(server, "meanwhile") == 1, "the topic made meanwhile")
        wait_until(lambda: can_make(server, "later"), "topics that can be made")
        # Watches are set in the new session.
        tree.create("/brokers/topics/last", b'{"version":1,"partitions":{"0":[7]}}')
        wait_until(lambda: partitions(server, "last") == 1, "the topic made last")
        assert read(server, "t", 1) == ["x"]
        assert "Traceback" not in server.server.stderr


def test_the_controller_s_node_is_deleted_to_have_an_election(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides={"broker.id": "7"})
    tree.delete("/controller")
    wait_until(lambda: tree.get("/controller_epoch")[0] == b"2", "an election")
    assert node(tree, "/controller")["brokerid"] == 7
    wait_until(lambda: can_make(server, "t"), "topics that can be made")
    assert node(tree, "/brokers/topics/t/partitions/0/state")["controller_epoch"] == 2


def test_another_controller_is_obeyed(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides={"broker.id": "7"})
    transaction = tree.transaction()
    transaction.delete("/controller")
    transaction.create("/controller", b'{"version":2,"brokerid":8,"timestamp":"1"}', ephemeral=True)
    transaction.set_data("/controller_epoch", b"2")
    assert not any(isinstance(result, Exception) for result in transaction.commit())

    def is_refused() -> bool:
        asker = admin(server)
        [asked] = asker.create_topics([NewTopic(f"t{next(numbers)}", 1, 1)], request_timeout=1).values()
        return asked.exception(20) is not None

    numbers = itertools.count()
    wait_until(is_refused, "the broker to know that it is not the controller")
    tree.delete("/controller")
    wait_until(lambda: tree.exists("/controller"), "an election")
    assert node(tree, "/controller")["brokerid"] == 7
    # Until it has read all metadata it answers NOT_CONTROLLER, as Apache Kafka does.
    wait_until(lambda: not is_refused(), "the broker to take office")


@pytest.mark.spec("Z1")
def test_topics_are_made_grown_and_deleted_in_the_tree(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides={"broker.id": "7", "auto.create.topics.enable": "false"})
    tree.create("/config/topics/old", b'{"version":1,"config":{"retention.ms":"77000"}}')
    tree.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[7],"1":[7]}}')
    wait_until(lambda: partitions(server, "old") == 2, "the topic")
    found = node(tree, "/brokers/topics/old")
    assert found["version"] == 3
    assert len(str(found["topic_id"])) == 22
    assert node(tree, "/brokers/topics/old/partitions/1/state")["leader"] == 7
    assert setting(server, "old", "retention.ms") == "77000"
    send(server, "old", "x", partition=1)
    assert read(server, "old", 1) == ["x"]

    grown = {**found, "partitions": {"0": [7], "1": [7], "2": [7]}}
    tree.set("/brokers/topics/old", json.dumps(grown).encode())
    wait_until(lambda: partitions(server, "old") == 3, "the third partition")
    send(server, "old", "y", partition=2)
    assert read(server, "old", 2, "other") == ["x", "y"]
    # Again, for the watch is set again; and without the id, which tools of old do not know.
    without_id = {"version": 1, "partitions": {str(index): [7] for index in range(5)}}
    tree.set("/brokers/topics/old", json.dumps(without_id).encode())
    wait_until(lambda: partitions(server, "old") == 5, "the fifth partition")
    assert node(tree, "/brokers/topics/old")["topic_id"] == found["topic_id"]

    tree.create("/admin/delete_topics/old")
    wait_until(lambda: partitions(server, "old") == 0, "the deletion")
    wait_until(lambda: tree.exists("/admin/delete_topics/old") is None, "the end of the deletion")
    assert tree.exists("/brokers/topics/old") is None
    assert tree.exists("/config/topics/old") is None
    assert not list(server.data.glob("old-?"))
    # A mark of nothing is taken away.
    tree.create("/admin/delete_topics/never-was")
    wait_until(lambda: tree.exists("/admin/delete_topics/never-was") is None, "the end of the mark")
    # And the same name again.
    tree.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[7]}}')
    wait_until(lambda: partitions(server, "old") == 1, "the topic of the same name")
    assert "Traceback" not in server.server.stderr


def test_settings_are_changed_in_the_tree(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides={"broker.id": "7"})
    make(server, "t")
    notifications = [
        b'{"version":2,"entity_path":"topics/t"}',
        b'{"version":1,"entity_type":"topics","entity_name":"t"}',
        b'"t"',
    ]
    tree.create("/config/changes/config_change_", b"not JSON", sequence=True)
    for number, notification in enumerate(notifications):
        wanted = str(10_000 + number)
        tree.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"%s"}}' % wanted.encode())
        tree.create("/config/changes/config_change_", notification, sequence=True)
        wait_until(lambda wanted=wanted: setting(server, "t", "retention.ms") == wanted, notification.decode())
    tree.create("/config/brokers/<default>", b'{"version":1,"config":{"log.retention.ms":"99000"}}')
    tree.create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/<default>"}', sequence=True)
    make(server, "u")
    wait_until(lambda: setting(server, "u", "retention.ms") == "99000", "the setting of all brokers")
    assert "Traceback" not in server.server.stderr


def test_nonsense_in_the_tree_is_reported_and_harms_nothing(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides={"broker.id": "7", "delete.topic.enable": "false"})
    tree.create("/brokers/topics/nonsense", b"[]")
    tree.create("/brokers/topics/holes", b'{"version":1,"partitions":{"0":[7],"5":[7]}}')
    tree.create("/brokers/topics/elsewhere", b'{"version":1,"partitions":{"0":[99]}}')
    tree.create("/brokers/topics/a b", b'{"version":1,"partitions":{"0":[7]}}')
    make(server, "t")
    tree.create("/admin/delete_topics/t")
    wait_until(lambda: tree.exists("/admin/delete_topics/t") is None, "the end of the mark")
    assert partitions(server, "t") == 1
    wait_until(lambda: partitions(server, "elsewhere") == 1, "the topic without leader")
    with pytest.raises(NoNodeError):
        tree.get("/brokers/topics/elsewhere/partitions/0/state")
    tree.delete("/brokers/topics/t", recursive=True)
    told = ["/brokers/topics/nonsense holds no JSON object", "leaves out numbers", "'a b'",
            "delete.topic.enable forbids", "the znode of topic t was removed"]  # fmt: skip
    wait_until(lambda: all(text in server.server.stderr for text in told), lambda: server.server.stderr)
    send(server, "t", "x")
    assert read(server, "t", 1) == ["x"]
    assert "Traceback" not in server.server.stderr


def test_a_topic_of_thousands_of_partitions_is_made_in_several_requests(serve: Serve, tree: KazooClient) -> None:
    server = serve(overrides={"broker.id": "7", "log.index.size.max.bytes": "4096"})
    name = "many-" + "x" * 200
    make(server, name, 1_000)
    assert len(tree.get_children(f"/brokers/topics/{name}/partitions")) == 1_000
    assert node(tree, f"/brokers/topics/{name}/partitions/999/state")["leader"] == 7
    delete(server, name)
    assert tree.exists(f"/brokers/topics/{name}") is None
