"""What users type is pinned: imports, class names in settings, commands with their options.

The files beside this one hold the names of 0.1.0. A name that goes, or is called differently, fails here; new ones are
added with `OTTLA_RECORD=1`. A name may move only if its former path keeps working.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ottla.assign.registry import BUILT_IN as ASSIGNORS
from ottla.cli.main import app
from ottla.client.configs.instances import imported
from ottla.client.producer.partitioners import BUILT_IN as PARTITIONERS
from ottla.client.serialization.making import DESERIALIZERS, SERIALIZERS
from ottla.client.sync import Consumer, Producer
from ottla.testing import Broker as OnDisk
from ottla.testing import Cluster
from support.documents import commands
from support.hanging_transactions import UNVERIFIED, hang
from support.waiting import wait_until

pytestmark = pytest.mark.spec("U2")

FOLDER = Path(__file__).parent


def kept(name: str, found: Any) -> Any:
    """What the file `name` holds; with OTTLA_RECORD=1 what was found is written first."""
    path = FOLDER / name
    if os.environ.get("OTTLA_RECORD"):
        path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return json.loads(path.read_text())


def public_names(module_name: str) -> dict[str, list[str]]:
    """Public names with the public attributes of classes: what a package or `__all__` offers, what a module defines."""
    module = importlib.import_module(module_name)
    offered = {*getattr(module, "__all__", ()), *re.findall(r"import (\w+) as \1\b", inspect.getsource(module))}
    home = "ottla" if hasattr(module, "__path__") else module_name
    found: dict[str, list[str]] = {}
    for name in sorted({*dir(module), *offered}):
        value = getattr(module, name, None)
        origin = str(getattr(value, "__module__", None) or home)
        if name.startswith("_") or inspect.ismodule(value) or not (name in offered or origin.startswith(home)):
            continue
        is_class = inspect.isclass(value)
        found[name] = sorted(each for each in dir(value) if not each.startswith("_")) if is_class else []
    return found


def test_public_imports() -> None:
    """Of the packages and modules that documents import from, which are the keys of the file."""
    modules = json.loads((FOLDER / "imports.json").read_text())
    found = {name: public_names(name) for name in modules}
    for module, names in kept("imports.json", found).items():
        assert names.keys() - found[module].keys() == set(), module
        missing = {
            f"{name}.{each}" for name, each_of in names.items() for each in set(each_of) - set(found[module][name])
        }
        assert missing == set(), module


def test_classes_named_in_settings() -> None:
    """Short names, and the dotted paths of the same classes."""
    built_in = {"assignors": ASSIGNORS, "partitioners": PARTITIONERS, "serializers": SERIALIZERS}
    built_in |= {"deserializers": DESERIALIZERS}
    found = {
        kind: {name: f"{each.__module__}.{each.__qualname__}" for name, each in classes.items()}
        for kind, classes in built_in.items()
    }
    for kind, names in kept("classes.json", found).items():
        for name, path in names.items():
            assert imported(path) is built_in[kind][name]


def options_of(parameters: Iterable[Any]) -> list[str]:
    """Names of options as typed, and of arguments in their order."""
    return [option for each in parameters for option in ([*each.opts, *each.secondary_opts] or [each.name])]


def test_commands_and_their_options() -> None:
    found = {name: options_of(command.params) for name, command in commands().items()}
    for name, options in kept("commands.json", found).items():
        assert set(options) - set(found[name]) == set(), f"ottla {name}"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, settings=UNVERIFIED) as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=2)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for number in range(20):
                producer.send("orders", b"record", partition=number % 2)
        servers = cluster.bootstrap_servers
        # Whatever the placement of the others, there is something to even out.
        crowded = ["topic", "create", "crowded", "--replica-assignment", ",".join(["0:1"] * 12), "-b", servers]
        assert CliRunner().invoke(app, crowded).exit_code == 0
        cluster.create_topic("held", partitions=1)
        led_at = servers.split(",")[cluster.wait_for_leader("held")]
        hang(int(led_at.rpartition(":")[2]), "held", 0, 7000, timestamp_ms=0)
        with Consumer(bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            wait_until(lambda: consumer.poll(1000), "records")
            consumer.commit()
        with Producer(
            bootstrap_servers=servers, transactional_id="shop", transaction_timeout_ms=TRANSACTION_MS
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("orders", b"open", partition=0).result()
            yield cluster


#: Commands that print rows, in an order in which each finds what it needs. FILE holds moves, LOG is a log directory,
#: PIPELINE a pipeline's file, GROUP a group's.
COMMANDS = """
topic list
topic describe orders
topic create made --partitions 2
topic alter made --partitions 3
topic delete made --yes
group list
group describe readers
group why readers
group reset-offsets readers --to-earliest --topic orders --yes
group delete-offsets readers --topic orders --yes
group delete readers --yes
config set retention.ms=1000000 --topic orders --yes
config describe --topic orders
config unset retention.ms --topic orders --yes
broker list
broker describe 1
broker producers orders
transaction list
transaction describe shop
transaction find-hanging
transaction abort --topic held --partition 0 --start-offset 0 --yes
replica list orders
replica verify orders
cluster status
cluster health
cluster leave --id 1
leader-election orders-0 --election-type preferred --yes
reassign generate orders --broker-list 0,1
reassign plan --even
reassign execute FILE --yes
reassign verify FILE
log dump LOG
log verify LOG
rebalance simulate --file GROUP --add 1
rebalance compare --members 2 --partitions 4 --turns 3 --growth
pipeline check PIPELINE
pipeline status PIPELINE
""".strip().splitlines()
TRANSACTION_MS = 900_000
OFFLINE = ("log", "rebalance")
PIPELINE = """
name = "p"
checkpoint = "checkpoint"
[source]
topics = ["orders"]
[sink]
kind = "console"
"""


def shape_of(value: Any) -> Any:
    """The keys of a row, those of rows within it included."""
    if isinstance(value, dict):
        return {key: shape_of(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape_of(value[0])] if value and isinstance(value[0], dict) else []
    return None


def lacking(before: Any, now: Any) -> bool:
    """Whether a key of `before` is not in `now`."""
    if isinstance(before, dict) and isinstance(now, dict):
        return any(key not in now or lacking(each, now[key]) for key, each in before.items())
    return isinstance(before, list) and isinstance(now, list) and bool(before and now) and lacking(before[0], now[0])


def rows_of(command: str, cluster: Cluster, folder: Path) -> list[Any]:
    """The shapes of the rows that a command prints, each once."""
    paths = {"FILE": folder / "moves.json", "LOG": folder / "log", "PIPELINE": folder / "p.toml"}
    paths["GROUP"] = folder / "group.json"
    words = [str(paths.get(word, word)) for word in command.split()]
    servers = [] if command.startswith(OFFLINE) else ["-b", cluster.bootstrap_servers]
    done = CliRunner().invoke(app, [*words, "--json", *servers])
    shapes = [shape_of(json.loads(line)) for line in done.stdout.splitlines()]
    assert shapes, f"{command}: {done.output}"
    return [shape for at, shape in enumerate(shapes) if shape not in shapes[:at]]


@pytest.mark.slow
def test_rows_of_json(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PIPELINE)
    (tmp_path / "group.json").write_text('{"topics": {"orders": 4}, "members": ["c1", "c2"]}')
    moves = [{"topic": "orders", "partition": 0, "replicas": [(cluster.replicas("orders", 0)[0] + 1) % 3]}]
    (tmp_path / "moves.json").write_text(json.dumps({"version": 1, "partitions": moves}))
    with OnDisk(data=tmp_path / "log") as broker:
        broker.send("orders", b"value", key=b"key")
    why = ["group", "why", "readers", "--json", "-b", cluster.bootstrap_servers]
    wait_until(lambda: CliRunner().invoke(app, why).stdout, "the group's rebalances are recorded")
    found = {command: rows_of(command, cluster, tmp_path) for command in COMMANDS}
    for command, shapes in kept("json_rows.json", found).items():
        for shape in shapes:
            assert any(not lacking(shape, now) for now in found[command]), f"ottla {command} --json: {shape}"
