"""The package as users get it: built, installed in a fresh environment with an empty home, and used."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from support.documents import commands
from support.packing import PROJECT, VirtualEnvironment, base_dependencies, copied_sources, packed
from support.processes import ServerProcess

pytestmark = [pytest.mark.spec("U4"), pytest.mark.slow, pytest.mark.timeout(600)]

READY = re.compile(r"listening on (127\.0\.0\.1:\d+)")

CLIENTS = """
import sys
from ottla.client.sync import Consumer, Producer
with Producer(bootstrap_servers=sys.argv[1], value_serializer="StringSerializer") as producer:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer.send("greetings", value=codec)
with Consumer(bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["greetings"])
    found = []
    while len(found) < 5:
        found += [record.value for record in consumer.poll(1000)]
print(found)
"""

TEST_BROKER = """
import ottla.testing
with ottla.testing.Broker({"orders": 2}) as broker:
    broker.send("orders", "hello")
    print([record.value for record in broker.records("orders")])
"""

A_USERS_TEST = """
import os

import pytest

import ottla


@pytest.mark.ottla(topics={"orders": 3})
def test_orders(ottla_broker, ottla_topic):
    assert os.environ["OTTLA_BOOTSTRAP_SERVER"] == ottla_broker.bootstrap_servers
    ottla_broker.send("orders", "hello")
    assert ottla_broker.topics() == {"orders": 3, ottla_topic: 1}
"""

#: Program, arguments, and the one sentence that it ends with.
WITHOUT_EXTRAS = [
    ("ottla serve --port 0 --zookeeper 127.0.0.1:1", "a connection to ZooKeeper needs kazoo", "zookeeper"),
    ("ottla serve --port 0 -c ottla.metrics.port=0", "the metrics endpoint needs prometheus-client", "metrics"),
    ("ottla demo", "the demo needs pyspark, pyarrow, deltalake, sqlglot, confluent-kafka, matplotlib", "demo"),
    ("ottla pipeline run none.toml", "the pipeline needs pyspark, pyarrow", "pipelines"),
    ("import ottla.spark; ottla.spark.session('s')", "ottla.spark needs pyspark", "spark"),
    ("import ottla.spark.source", "ottla.spark needs pyspark", "spark"),
    ("from ottla.records.arrow import arrow_schema; arrow_schema()", "reading Arrow needs pyarrow", "arrow"),
    (
        "from ottla.client.sync import Consumer; Consumer(bootstrap_servers='127.0.0.1:1').poll_arrow(0)",
        "reading Arrow needs pyarrow",
        "arrow",
    ),
    (
        "from ottla.zkconsumer import create_connector as c; c({'zookeeper.connect': '127.0.0.1:1', 'group.id': 'g'})",
        "a connection to ZooKeeper needs kazoo",
        "zookeeper",
    ),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(copied_sources(tmp_path_factory.mktemp("pure") / "sources"), "wheel", 100, OTTLA_BUILD="pure")


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> VirtualEnvironment:
    """The wheel with its base dependencies and nothing else."""
    environment = VirtualEnvironment(tmp_path_factory.mktemp("base") / "venv")
    environment.take_over(base_dependencies())
    environment.install("--no-index", "--no-deps", str(wheel), timeout=100)
    return environment


def serves(environment: VirtualEnvironment) -> None:
    """`ottla serve`, with a producer and a consumer in processes of their own."""
    command = [str(environment.bin / "ottla"), "serve", "--port", "0", "--data", str(environment.work / "data")]
    server = ServerProcess("ottla", command, environment.work, environment.env)
    try:
        address = server.wait_until_ready(lambda: READY.findall(server.stdout), 50)[0]
        assert (
            environment.output("python", "-c", CLIENTS, address)
            == f"{[b'none', b'gzip', b'snappy', b'lz4', b'zstd']}\n"
        )
    finally:
        server.terminate(20)


def check_installed(environment: VirtualEnvironment, build: str) -> None:
    """What a new user does first."""
    version = f"ottla {ottla.__version__} ({build})\n"
    assert environment.output("ottla", "--version") == version
    assert environment.output("python", "-m", "ottla", "--version") == version
    assert environment.output("python", "-c", TEST_BROKER) == "[b'hello']\n"
    serves(environment)
    (environment.work / "test_orders.py").write_text(A_USERS_TEST)
    assert "1 passed" in environment.output("python", "-m", "pytest", "-q", "test_orders.py")


def test_nothing_is_missing(base: VirtualEnvironment) -> None:
    assert base.output("python", "-m", "pip", "check") == "No broken requirements found.\n"


def test_every_command_has_its_help(base: VirtualEnvironment) -> None:
    """In one process: each of them starts an interpreter otherwise."""
    program = (
        "import sys\nfrom ottla.cli.main import app\n"
        "for words in sys.argv[1:]:\n    app([*words.split(), '--help'], standalone_mode=False)"
    )
    names = list(commands())
    assert len(names) > 10
    printed = base.output("python", "-c", program, *names)
    assert printed.count("Usage: ") == len(names)
    assert "Usage: ottla" in base.output("ottla", "--help")


@pytest.mark.parametrize(("program", "needs", "extra"), WITHOUT_EXTRAS, ids=[row[0][:40] for row in WITHOUT_EXTRAS])
def test_a_missing_extra_is_named(base: VirtualEnvironment, program: str, needs: str, extra: str) -> None:
    command = program.split() if program.startswith("ottla") else ["python", "-c", program]
    done = base.run(*command)
    assert done.returncode != 0
    *_, last = done.stderr.splitlines()
    assert last.endswith(f"{needs}: pip install 'ottla[{extra}]'")


def test_a_walk_with_the_base_package(base: VirtualEnvironment) -> None:
    base.take_over(["pytest"])
    before = sorted(base.home.iterdir())
    check_installed(base, "pure")
    assert sorted(base.home.iterdir()) == before, "nothing is written into the home directory"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_wheel_for_any_linux(tmp_path: Path) -> None:
    """`./run wheels` for this Python: what it makes, and a walk with the compiled wheel."""
    done = subprocess.run(
        [PROJECT / "run", "wheels", tmp_path / "dist"],
        env={**os.environ, "OTTLA_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = sorted(path.name for path in (tmp_path / "dist").iterdir())
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    compiled = f"ottla-{ottla.__version__}-{python}-{python}-manylinux2014_{platform.machine()}"
    assert [made[0].startswith(compiled), made[1].endswith("-py3-none-any.whl"), made[2].endswith(".tar.gz")] == [
        True
    ] * 3
    environment = VirtualEnvironment(tmp_path / "venv")
    environment.take_over([*base_dependencies(), "pytest"])
    environment.install("--no-index", "--no-deps", str(tmp_path / "dist" / made[0]), timeout=100)
    check_installed(environment, "compiled")


def pythons() -> list[str]:
    """An interpreter for each supported version that is installed here; OTTLA_PYTHON names them otherwise."""
    found = subprocess.run(
        [PROJECT / "run", "pythons"], capture_output=True, text=True, timeout=50, check=True
    ).stdout.splitlines()
    return found or [sys.executable]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_walks_with_each_python(tmp_path: Path) -> None:
    """From the package index: the source distribution with and without a compiler, and the wheel of it."""
    archive = packed(copied_sources(tmp_path / "sources"), "sdist")
    compiler = shutil.which(os.environ.get("CC", "cc"))
    for number, python in enumerate(pythons()):
        for build, cc in (("compiled", compiler), ("pure", "/bin/false")):
            if cc is None:
                continue
            environment = VirtualEnvironment(tmp_path / f"{build}{number}", python)
            environment.install("pytest", str(archive), timeout=600, CC=cc)
            check_installed(environment, build)
