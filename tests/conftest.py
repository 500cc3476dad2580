"""What all tests share: markers for outside programs, servers, the report per requirement, the check for leftovers."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import psutil
import pytest

from support.apache import ApacheKafka, ApacheZooKeeper
from support.assignor_oracle import AssignorOracle
from support.brokers import RunningBroker
from support.client_facades import FACADES, Facade
from support.group_members import built_members
from support.java import java_executable, kafka_libs, kcat_executable, older_libs, zookeeper_082_libs
from support.ottla_server import OttlaServer
from support.spec_report import SpecReport, requirement_ids

PROJECT = Path(__file__).resolve().parents[1]
REPORT_PATH = PROJECT / ".cache" / "spec-report.txt"
#: Helpers of Python's own that end with the interpreter.
OWN_CHILDREN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

#: Topics may have 249 characters, and tests add to theirs.
MOST_OF_A_NAME = 150

REPORT = pytest.StashKey[SpecReport]()

#: Marker, whether what it needs is there, and what is missing otherwise.
NEEDS: dict[str, tuple[Callable[[], object], str]] = {
    "needs_java": (java_executable, "no Java 17 or newer (apt-get install openjdk-17-jre-headless)"),
    "needs_kafka": (
        lambda: kafka_libs() and java_executable(),
        "no jars of Apache Kafka in .cache/kafka-libs, or no Java 17 to run them (./run test brings both)",
    ),
    "needs_older": (
        lambda: older_libs() and kafka_libs() and java_executable(),
        "no jars of Apache Kafka's older clients in .cache/kafka-older, or no Java 17 (./run test brings both)",
    ),
    "needs_082": (
        lambda: zookeeper_082_libs() and kafka_libs() and java_executable(),
        "no jars of ZooKeeper's clients of 0.8.2 in .cache/kafka-older, or no Java 17 (./run test brings both)",
    ),
    "needs_members": (built_members, "no group members in .cache/members (./run test builds them with Go and npm)"),
    "needs_kcat": (kcat_executable, "no kcat (apt-get install kcat)"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """What can be asked of a run beside pytest's own options."""
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")
    parser.addoption("--spec-report", type=Path, default=REPORT_PATH, help="where to write the tests per requirement")
    parser.addoption("--update-docs", action="store_true", help="write the pages of docs/ that are made from the code")


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty report."""
    config.stash[REPORT] = SpecReport()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests out unless asked for; note the requirements of the others."""
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]
    for item in items:
        for marker in item.iter_markers("spec"):
            config.stash[REPORT].expect(item.nodeid, marker.args)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose outside program is missing; in CI that is a failure, since there everything has to run."""
    for name, (available, missing) in NEEDS.items():
        if item.get_closest_marker(name) and not available():
            if os.environ.get("CI") == "true":
                pytest.fail(missing, pytrace=False)
            pytest.skip(missing)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put each outcome down for the requirements of the test."""
    report = yield
    item.config.stash[REPORT].record(item.nodeid, report.outcome)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report; fail the run if it leaves processes behind."""
    if not hasattr(session.config, "workerinput") and session.config.stash[REPORT].outcomes:
        known = requirement_ids(PROJECT / "docs" / "requirements.md")
        session.config.stash[REPORT].write(session.config.getoption("--spec-report"), known)
    leftovers = [child for child in psutil.Process().children(recursive=True) if _is_leftover(child)]
    for child in leftovers:
        _tell(session, f"left running: {child.pid} {' '.join(child.cmdline())[:200]}")
        child.kill()
    if leftovers:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line of the report."""
    report = config.stash[REPORT]
    if report.outcomes:
        shown = report.shown()
        path = os.path.relpath(config.getoption("--spec-report"))
        terminalreporter.write_line(f"requirements shown: {' '.join(shown) or 'none'} (the tests of each: {path})")


def _is_leftover(process: psutil.Process) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
    return not any(own in command for own in OWN_CHILDREN)


def _tell(session: pytest.Session, line: str) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(line, red=True)


@pytest.fixture(params=FACADES)
def facade(request: pytest.FixtureRequest) -> Iterator[Facade]:
    """Makes clients of one kind, with an event loop or without; see `support.client_facades`."""
    made = Facade(request.param)
    yield made
    made.close()


@pytest.fixture(scope="session")
def apache_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheZooKeeper]:
    """An Apache ZooKeeper that lasts for the whole run. Tests that use it are marked needs_kafka."""
    zookeeper = ApacheZooKeeper(tmp_path_factory.mktemp("apache-zookeeper"))
    try:
        yield zookeeper.start()
    finally:
        zookeeper.stop()


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory, apache_zookeeper: ApacheZooKeeper) -> Iterator[ApacheKafka]:
    """An Apache Kafka broker (ZooKeeper mode) that lasts for the whole run: use topics and groups of your own."""
    kafka = ApacheKafka(tmp_path_factory.mktemp("apache-kafka"), zookeeper=apache_zookeeper)
    try:
        yield kafka.start()
    finally:
        kafka.stop()


@pytest.fixture(scope="session")
def assignor_oracle() -> Iterator[AssignorOracle]:
    """Java's own assignors, in one process for the whole run. Tests that use it are marked needs_kafka."""
    with AssignorOracle() as oracle:
        yield oracle


@pytest.fixture
def ottla_server(tmp_path: Path) -> Iterator[OttlaServer]:
    """Our broker as a process with fresh data, started; killing and restarting it is the test's to do."""
    server = OttlaServer(tmp_path / "ottla")
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_ottla_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    """One process of our broker for the whole run: use topics and groups of your own, and do not kill it."""
    # What `support.apache` sets for Apache Kafka, too.
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.ms": "-1",
        "offsets.topic.num.partitions": "4",
    }
    server = OttlaServer(tmp_path_factory.mktemp("ottla"), overrides=settings)
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    """Ours and Apache Kafka in turn: what a test says of one must hold for the other. Shared: use names of your own."""
    name = {"ottla": "shared_ottla_server", "apache": "apache_kafka"}[request.param]
    found: RunningBroker = request.getfixturevalue(name)
    return found


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test uses: the test's own, made different by where it stands."""
    allowed = "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")
    return f"{allowed[:MOST_OF_A_NAME]}-{zlib.crc32(request.node.nodeid.encode()):08x}"
