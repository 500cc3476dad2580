"""`ottla acl` and the admin client's ACL calls with the brokers of a test cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.client.admin import AclBinding, AclBindingFilter
from ottla.client.errors import BrokerError, InvalidArgumentError, PartlyFailedError
from ottla.client.sync import Admin
from ottla.testing import Broker, Cluster
from ottla.wire.errors import ErrorCode
from support.raw_client import RawClient
from support.waiting import wait_until

pytestmark = pytest.mark.spec("S3", "U2")

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, {"orders": 1}, settings=AUTHORIZER) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin
        admin.delete_acls([AclBindingFilter()])
        for number in (0, 1):
            wait_until(lambda number=number: not acls_of(cluster, number), "the removal")


def acls_of(cluster: Cluster, number: int) -> int:
    store = cluster.broker(number).acls
    assert store is not None
    return len(store.rules.patterns)


def ottla(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["acl", *arguments, "-b", cluster.bootstrap_servers])


def rows(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def error_at(cluster: Cluster, number: int) -> int:
    """What this broker says of the topic."""
    with RawClient(cluster.broker(number).listening[0].port) as client:
        return client.metadata("orders").topics[0].error_code


def test_an_acl_made_at_one_broker_is_in_force_at_all(cluster: Cluster, admin: Admin) -> None:
    for number in (0, 1):
        wait_until(lambda number=number: error_at(cluster, number) == 0, "the topic")
    admin.create_acls([AclBinding("TOPIC", "orders", "User:alice", "READ")])
    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for number in (0, 1):
        wait_until(lambda number=number: error_at(cluster, number) == denied, "the ACL")
    admin.create_acls([AclBinding("TOPIC", "ord", "User:ANONYMOUS", "DESCRIBE", pattern_type="PREFIXED")])
    for number in (0, 1):
        wait_until(lambda number=number: error_at(cluster, number) == 0, "the ACL of a prefix")


def test_acls_of_the_admin_client(cluster: Cluster, admin: Admin) -> None:
    read = AclBinding("TOPIC", "orders", "User:alice", "READ")
    denied = AclBinding("GROUP", "g", "User:*", "DELETE", "DENY", "10.0.0.1", "PREFIXED")
    admin.create_acls([read, denied])
    wait_until(lambda: admin.describe_acls() == [denied, read], "both")
    assert admin.describe_acls(AclBindingFilter("GROUP", "g1", pattern_type="MATCH")) == [denied]
    with pytest.raises(PartlyFailedError) as partly:
        admin.create_acls([read, AclBinding("CLUSTER", "x", "User:a", "ALTER"), read._replace(host="10.0.0.0/8")])
    of_the_cluster, of_a_network = map(str, partly.value.errors.values())
    assert "the only valid name for the cluster" in of_the_cluster.lower()
    assert "10.0.0.0/8 is a network" in of_a_network
    with pytest.raises(InvalidArgumentError, match="operation 'read' cannot be"):
        admin.create_acls([read._replace(operation="read")])
    with pytest.raises(InvalidArgumentError, match="cannot be"):
        admin.create_acls([read._replace(pattern_type="ANY")])
    everything = AclBindingFilter(principal="User:alice")
    assert admin.delete_acls([everything, AclBindingFilter("GROUP")]) == {
        everything: [read],
        AclBindingFilter("GROUP"): [denied],
    }
    with Broker() as open_to_all, Admin(bootstrap_servers=open_to_all.bootstrap_servers) as other:
        for call in (other.describe_acls, lambda: other.create_acls([read]), lambda: other.delete_acls([everything])):
            with pytest.raises(BrokerError, match="SECURITY_DISABLED"):
                call()
        done = CliRunner().invoke(app, ["acl", "list", "-b", open_to_all.bootstrap_servers])
        assert (done.exit_code, "authorizer.class.name" in done.stderr) == (1, True)


def test_rights_of_producers_and_consumers(cluster: Cluster, admin: Admin) -> None:
    made = rows(ottla(cluster, "add", "--allow", "User:p", "--producer", "-t", "orders", "--json"))
    assert [(row["name"], row["principal"], row["operation"], row["permission"], row["host"]) for row in made] == [
        ("orders", "User:p", operation, "ALLOW", "*") for operation in ("WRITE", "DESCRIBE", "CREATE")
    ]
    consumer = ("--consumer", "-t", "orders", "-g", "app", "--prefixed")
    made = rows(ottla(cluster, "add", "--allow", "User:c", *consumer, "--json"))
    assert [(row["resource_type"], row["operation"], row["pattern_type"]) for row in made] == [
        ("TOPIC", "READ", "PREFIXED"),
        ("TOPIC", "DESCRIBE", "PREFIXED"),
        ("GROUP", "READ", "PREFIXED"),
    ]
    wait_until(lambda: len(rows(ottla(cluster, "list", "--json"))) == 6, "all")
    assert len(rows(ottla(cluster, "list", "--topic", "orders-eu", "--match", "--json"))) == 2
    shown = ottla(cluster, "list", "--principal", "User:c")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["RESOURCE", "NAME", "PRINCIPAL", "MAY", "OPERATION", "HOST"],
        ["group", "app…", "User:c", "yes", "read", "*"],
        ["topic", "orders…", "User:c", "yes", "describe", "*"],
        ["topic", "orders…", "User:c", "yes", "read", "*"],
    ]
    remove = ("remove", "--principal", "User:c", *consumer)
    done = ottla(cluster, *remove)
    assert (done.exit_code, "nothing was changed: --yes does it" in done.stderr) == (1, True)
    done = ottla(cluster, *remove, "--yes")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "removed 3 ACLs")
    wait_until(lambda: len(rows(ottla(cluster, "list", "--json"))) == 3, "the removal")
    gone = rows(ottla(cluster, "remove", "--principal", "User:p", "--yes", "--json"))
    assert {row["operation"] for row in gone} == {"WRITE", "DESCRIBE", "CREATE"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "-t", "x"), "say who: --allow User:alice"),
        (("add", "--allow", "User:a"), "say of what: --topic"),
        (("add", "--allow", "alice", "-t", "x"), "as in User:alice"),
        (("add", "--allow", "User:a", "--consumer", "-t", "x"), "--consumer needs --group"),
        (("add", "--allow", "User:a", "--producer", "-g", "x"), "need --topic"),
        (("add", "--allow", "User:a", "--idempotent", "-t", "x"), "--idempotent goes with --producer"),
        (("add", "--allow", "User:a", "-t", "x", "-g", "g", "--producer"), "need nothing of group"),
        (("add", "--allow", "User:a", "-t", "x", "-o", "read", "--producer"), "leave --operation out"),
        (("add", "--allow", "User:a", "-g", "x", "-o", "write"), "write is not for a group"),
        (("remove",), "say which: by --topic"),
    ],
)
def test_what_cannot_be_done_as_asked(cluster: Cluster, arguments: tuple[str, ...], words: str) -> None:
    done = ottla(cluster, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nothing_to_remove(cluster: Cluster) -> None:
    done = ottla(cluster, "remove", "--principal", "User:nosuch", "--yes")
    assert (done.exit_code, "no such ACLs" in done.stderr) == (1, True)
