"""What all tests share: markers for outside programs, servers, the report per requirement, the check for leftovers."""

from __future__ import annotations

import gc
import json
import os
import signal
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from support.apache import ApacheKafka, ApacheZooKeeper
from support.assignor_oracle import AssignorOracle
from support.brokers import RunningBroker
from support.changed import Reached, changed_files, reached_by
from support.client_facades import FACADES, Facade
from support.examples import built_examples
from support.foreign_suites import foreign_distributions
from support.group_members import built_members
from support.java import (
    java_executable,
    kafka_libs,
    kcat_executable,
    older_libs,
    spark_connector,
    streams_libs,
    zookeeper_082_libs,
)
from support.kerberos import kerberos_packages
from support.leftovers import end_all, leftover_children, leftover_files, leftovers_of_run, mark_this_run
from support.ottla_server import OttlaServer
from support.programs import built_programs, burrow_executable, prometheus_executable, promtool_executable, site_python
from support.scheduling import SHORT, ByDirectory, TestTimes, workers_for
from support.second_tries import DATA_MARKER, SPEC, FlakyList, Outcomes, RunAgain, judge
from support.spec_report import SpecReport, requirement_ids
from support.tiers import TIER_VARIABLE, Tiers, wanted_tier
from support.tools import tools_are_there, wait_for_tools, why_no_tools

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).resolve().parent
PROJECT = TESTS.parent
REPORT_PATH = PROJECT / ".cache" / "spec-report.txt"
FLAKY_PATH = TESTS / "flaky.jsonl"
TIERS_PATH = TESTS / "tiers.toml"

#: Topics may have 249 characters, and tests add to theirs.
MOST_OF_A_NAME = 150

REPORT = pytest.StashKey[SpecReport]()
#: The tests that the changes reach, where only they are to run.
REACHED = pytest.StashKey[Reached]()
#: Where a worker puts what it says of processes that it found still running.
LEFT_RUNNING = "left_running"

#: Seconds for a test that waits for starts of Java, and so for a busy machine; others have the limit of the project.
LIMIT_WITH_JAVA_S = 600
WITH_JAVA = (
    "needs_examples",
    "needs_java",
    "needs_kafka",
    "needs_older",
    "needs_streams",
    "needs_082",
    "needs_connector",
)

#: How a user's terminal is, and where a user's clusters are: programs would obey these in place of what a test sets up.
USERS_VARIABLES = (
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "NO_COLOR",
    "OTTLA_BOOTSTRAP_SERVER",
    "OTTLA_CLUSTER",
    "OTTLA_CLUSTERS_FILE",
    "OTTLA_LOG_LEVEL",
    "OTTLA_ZOOKEEPER",
    "PY_COLORS",
    "TERMINAL_WIDTH",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)

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
    "needs_connector": (
        lambda: spark_connector() and java_executable(),
        "no jars of Spark's own Kafka connector in .cache/spark-kafka, or no Java 17 (./run test brings both)",
    ),
    "needs_streams": (
        lambda: streams_libs() and kafka_libs() and java_executable(),
        "no jars of Kafka Streams in .cache/kafka-streams, or no Java 17 to run them (./run test brings both)",
    ),
    "needs_members": (built_members, "no group members in .cache/members (./run test builds them with Go and npm)"),
    "needs_examples": (
        built_examples,
        "examples in Java, Go, Node and Rust are not all built in .cache/examples (./run test --all does it)",
    ),
    "needs_kerberos": (
        kerberos_packages,
        "no KDC, or no gssapi and k5test in .cache/kerberos (./run test --all brings them with apt-get and pip)",
    ),
    "needs_programs": (
        built_programs,
        "no kaf and kaskade in .cache/programs (./run test --all gets them with Go and pip)",
    ),
    "needs_burrow": (burrow_executable, "no Burrow (./run test --all fetches it with apt-get)"),
    "needs_promtool": (promtool_executable, "no promtool (./run test --all fetches it with apt-get)"),
    "needs_prometheus": (prometheus_executable, "no Prometheus (./run test --all fetches it with apt-get)"),
    "needs_site": (site_python, "no Sphinx in .cache/site (./run test --all installs it)"),
    "needs_foreign": (foreign_distributions, "no source distributions in .cache/foreign (./run test fetches them)"),
    "needs_kcat": (kcat_executable, "no kcat (apt-get install kcat)"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """What can be asked of a run beside pytest's own options."""
    parser.addoption("--all", action="store_true", help="run all tests but those marked long")
    parser.addoption("--long", action="store_true", help="run all tests")
    parser.addoption("--quick", action="store_true", help="run only those that need no other program and do not wait")
    parser.addoption("--changed", action="store_true", help="run only those that changed files can reach")
    parser.addoption("--changed-since", metavar="COMMIT", help="the same, changed since COMMIT, not since main")
    parser.addoption("--spec-report", type=Path, default=REPORT_PATH, help="where to write the tests per requirement")
    parser.addoption("--flaky", type=Path, default=FLAKY_PATH, help="the list of tests that passed a second time")
    parser.addoption("--second-try", type=Path, help="run for a run in which the tests failed; write outcomes here")
    parser.addoption("--update-docs", action="store_true", help="write the pages of docs/ that are made from the code")


def pytest_configure(config: pytest.Config) -> None:
    """Tests run in this process, or in workers that this one controls, or this is a worker."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So shells start what runs in their background; tests press Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(ImportError):
        # Imported by pytest's debugger otherwise, and later: some builds set COLUMNS and LINES for all children then.
        import readline  # noqa: F401
    for name in USERS_VARIABLES:
        os.environ.pop(name, None)
        os.unsetenv(name)
    config.stash[REPORT] = SpecReport()
    os.environ[TIER_VARIABLE] = wanted_tier(config).name
    part = Worker(config) if hasattr(config, "workerinput") else WholeRun(config)
    config.pluginmanager.register(part, "ottla-run")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many workers `-n auto` means."""
    return workers_for(config.args, quick=config.getoption("--quick"), cores=os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config) -> ByDirectory | None:
    """Who hands the tests out to the workers, unless another one of pytest-xdist's was asked for."""
    if config.getoption("dist") != "load":
        return None
    times = TestTimes(_times_path(config)).earlier
    return ByDirectory(len(config.getoption("tx")), times, config.rootpath, tools_are_there)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A quick run does not even read the folders whose tests wait for other processes."""
    if config.getoption("--quick") and collection_path.parent == TESTS and collection_path.is_dir():
        return f"tests/{collection_path.name}/" not in SHORT or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests unless asked for, and what the run leaves out; note the others' requirements."""
    wanted, tiers = wanted_tier(config), Tiers.read(TIERS_PATH)
    reached = config.stash.get(REACHED, None)
    left_out: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        markers = list(item.iter_markers())
        names = {marker.name for marker in markers}
        is_reached = reached is None or reached.reaches(item, config.rootpath)
        if not is_reached or tiers.of(item.nodeid, names, NEEDS.keys()) > wanted:
            left_out.append(item)
            continue
        kept.append(item)
        if "timeout" not in names and not names.isdisjoint(WITH_JAVA):
            item.add_marker(pytest.mark.timeout(LIMIT_WITH_JAVA_S))
        for marker in markers:
            if marker.name == SPEC:
                config.stash[REPORT].expect(item.nodeid, marker.args)
                # The reports of the test carry them from a worker to the process that writes the report of the run.
                item.user_properties += [(SPEC, name) for name in marker.args]
        if DATA_MARKER in names:
            item.user_properties.append((DATA_MARKER, True))
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def pytest_collection_finish() -> None:
    """Keep the collected tests out of later garbage collections: those are frequent then, and short.

    Otherwise files that tests leave to the collector pile up, beyond the number that select() takes.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Wait for the set-up of other programs, before the test's time begins to count."""
    if not item.nodeid.startswith(SHORT) or any(item.get_closest_marker(name) for name in NEEDS):
        wait_for_tools()
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose outside program is missing; in CI that is a failure, since there everything has to run."""
    for name, (available, missing) in NEEDS.items():
        if item.get_closest_marker(name) and not available():
            if os.environ.get("CI") == "true":
                pytest.fail(missing, pytrace=False)
            pytest.skip(missing)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fail where a file of tests, or a fixture of theirs, leaves its files and sockets open."""
    yield
    if (nextitem is None or nextitem.path != item.path) and (count := leftover_files()):
        pytest.fail(f"{count} files and sockets are open after {item.path.name}", pytrace=False)


class Worker:
    """What a worker of a parallel run does for the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]
        received: dict[str, Any] = config.workerinput  # type: ignore[attr-defined]
        self._number, self._workers = int(received["workerid"].removeprefix("gw")), received["workercount"]
        if "reached" in received:
            config.stash[REACHED] = Reached.received(received["reached"])

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Read folders from another place on in each worker.

        Compiling a test file, its assertions rewritten, takes several times as long as loading it compiled. So workers
        that begin together in a new checkout compile a part each, and find the rest done.
        """
        report = yield
        if isinstance(collector, pytest.Dir) and report.result:
            first = len(report.result) * self._number // self._workers
            report.result = report.result[first:] + report.result[:first]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the files in the order that pytest-xdist wants to be the same in all workers."""
        items.sort(key=lambda item: item.path)

    def pytest_sessionfinish(self) -> None:
        """Tell of processes left behind."""
        self._output[LEFT_RUNNING] = end_all(leftover_children())


class WholeRun:
    """Gathers what all tests of a run have shown, in whichever process they ran."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._report = config.stash[REPORT]
        self._times = TestTimes(_times_path(config))
        self._left_running: list[str] = []
        self._outcomes = Outcomes()
        self._cannot_collect = False
        #: Failed tests and why each stays failed; empty for those that passed the second time.
        self._reasons: dict[str, str] = {}
        self._mark = mark_this_run()
        since = config.getoption("--changed-since")
        if since or config.getoption("--changed"):
            changed = changed_files(config.rootpath, since)
            config.stash[REACHED] = reached_by(config.rootpath, changed)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker is about to start."""
        if REACHED in self._config.stash:
            node.workerinput["reached"] = self._config.stash[REACHED].sent()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Put each outcome down for the requirements of the test."""
        if report.nodeid not in self._report.requirements:
            self._report.expect(report.nodeid, [str(name) for kind, name in report.user_properties if kind == SPEC])
        self._report.record(report.nodeid, report.outcome)
        self._times.add(report.nodeid, report.duration)
        self._outcomes.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that a file could not be collected: no second try makes that right."""
        self._cannot_collect |= report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended."""
        self._left_running += getattr(node, "workeroutput", {}).get(LEFT_RUNNING, [])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report; fail the run if it leaves processes behind. By now all workers have ended."""
        self._times.write()
        self._left_running += end_all(leftovers_of_run(self._mark))
        if second_try := self._config.getoption("--second-try"):
            second_try.write_text(json.dumps(self._outcomes.by_test))
        elif self._outcomes.failures and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            self._try_again(session)
        if self._report.outcomes:
            known = requirement_ids(PROJECT / "docs" / "requirements.md")
            self._report.write(self._config.getoption("--spec-report"), known)
        if self._left_running or why_no_tools():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _try_again(self, session: pytest.Session) -> None:
        """Run failed files a second time where they may be chance; a run without other failures passes then."""
        failures = self._outcomes.failures
        if self._left_running or self._cannot_collect or session.shouldstop or session.shouldfail:
            self._reasons = dict.fromkeys(failures, "the run is not whole: nothing runs again")
            return
        listed = FlakyList(self._config.getoption("--flaky"))
        with TemporaryDirectory() as scratch:
            run_again = RunAgain(self._config.rootpath, Path(scratch))
            self._reasons = judge(list(failures.values()), listed.unfixed(), run_again)
        for test in self._flaky():
            listed.add(failures[test])
            self._report.outcomes[test] = "passed"
        self._left_running += end_all(leftovers_of_run(self._mark))
        if not any(self._reasons.values()):
            session.exitstatus = pytest.ExitCode.OK

    def _flaky(self) -> list[str]:
        return [test for test, reason in self._reasons.items() if not reason]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What was left running, and one line of the report."""
        for line in (*self._left_running, why_no_tools()):
            if line:
                terminalreporter.write_line(line, red=True)
        if self._reasons:
            self._summarize_second_tries(terminalreporter)
        if self._report.outcomes:
            shown = self._report.shown()
            path = os.path.relpath(self._config.getoption("--spec-report"))
            terminalreporter.write_line(f"requirements shown: {' '.join(shown) or 'none'} (the tests of each: {path})")

    def _summarize_second_tries(self, terminalreporter: pytest.TerminalReporter) -> None:
        flaky, stats = set(self._flaky()), terminalreporter.stats
        for test, reason in self._reasons.items():
            terminalreporter.write_line(f"{test}: {reason or 'passed the second time, alone (tests/flaky.jsonl)'}")
        for name in ("failed", "error"):
            reports = stats.pop(name, [])
            if rest := [report for report in reports if report.nodeid not in flaky]:
                stats[name] = rest
        if flaky:
            # Of a test with two failed phases one report counts.
            stats["flaky"] = [SimpleNamespace(nodeid=test) for test in flaky]
        failed = len(self._reasons) - len(flaky)
        terminalreporter.write_line(f"{len(stats.get('passed', []))} passed, {failed} failed, {len(flaky)} flaky")


def _times_path(config: pytest.Config) -> Path:
    report: Path = config.getoption("--spec-report")
    return report.with_name("test-times.json")


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
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with `format("ottla")`, and with Spark's own Kafka connector where its jars are there.

    There can be one in a process, so it lasts for the whole run. Tests that use it are marked needs_java.
    """
    import ottla.spark
    from ottla.spark.local import stop

    folder = tmp_path_factory.mktemp("spark")
    jars = ",".join(map(str, spark_connector()))
    conf = {"spark.jars": jars} if jars else {}
    made = ottla.spark.session("tests", folder=folder, log_file=folder / "spark.log", conf=conf)
    yield made
    stop(made)


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
