"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"
pytestmark = [pytest.mark.spec("U1"), pytest.mark.slow]

SOURCES = Path(__file__).resolve().parents[3] / "src"
#: What a run that does not use the plugin may lose by it, in processor time.
MOST_COST_MS = 5.0
COST_ATTEMPTS = 10


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests, run with these sources and without the settings of this run."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "OTTLA_BOOTSTRAP_SERVER"):
        monkeypatch.delenv(name, raising=False)
    return pytester


def test_fixtures(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CLUSTER", "prod")
    inner.makeini("[pytest]\nottla_settings =\n  num.partitions=4\n  log.retention.ms = -1\n")
    inner.makepyfile(
        """
        import asyncio, os
        import pytest

        pytestmark = pytest.mark.ottla(topics={"of_module": 2})
        VARIABLE = "OTTLA_BOOTSTRAP_SERVER"
        seen = []

        def test_session_broker(ottla_broker, ottla_topic):
            assert os.environ[VARIABLE] == ottla_broker.bootstrap_servers
            assert "OTTLA_CLUSTER" not in os.environ
            assert ottla_broker.topics()["of_module"] == 2
            assert ottla_topic.startswith("test-session-broker-")
            ottla_broker.send("made_by_itself", "x", partition=3)
            ottla_broker.send(ottla_topic, "x")
            ottla_broker.faults.disconnect("Metadata")
            seen.append((ottla_broker, ottla_topic))

        def test_without_a_broker():
            assert VARIABLE not in os.environ

        @pytest.mark.ottla(topics={"nearer": {"partitions": 3, "cleanup_policy": "compact"}})
        def test_same_broker_without_the_rules_of_the_test_before(ottla_broker, ottla_topic):
            (broker, topic), = seen
            assert broker is ottla_broker and topic != ottla_topic
            assert "disconnect" not in str(vars(ottla_broker.faults))
            assert ottla_broker.topics()["nearer"] == 3

        @pytest.mark.ottla(topics={"own": 1}, settings={"num.partitions": 2}, on_disk=True)
        def test_fresh_broker(ottla_fresh_broker, ottla_broker, tmp_path):
            assert ottla_fresh_broker is not ottla_broker

        @pytest.mark.ottla(topics={"own": 1}, settings={"num.partitions": 2}, on_disk=True)
        class TestFresh:
            def test_on_disk(self, ottla_fresh_broker, tmp_path):
                assert ottla_fresh_broker.topics() == {"own": 1}
                assert os.environ[VARIABLE] == ottla_fresh_broker.bootstrap_servers
                ottla_fresh_broker.send("two", "x", partition=1)
                assert (tmp_path / "ottla" / "two-1").is_dir()

            def test_each_has_its_own(self, ottla_fresh_broker):
                assert "two" not in ottla_fresh_broker.topics()

        def test_coroutines_need_no_plugin(ottla_broker):
            async def scenario():
                ottla_broker.send("aio", "x")
                return await ottla_broker.aio.wait_for_records("aio", 1)
            assert asyncio.run(scenario())[0].value == b"x"
        """
    )
    result = inner.runpytest_subprocess("--strict-markers", "-p", "no:xdist", "-p", "no:asyncio")
    result.assert_outcomes(passed=6, errors=1)
    result.stdout.fnmatch_lines(
        ["*the marker's settings, on_disk, tls and sasl belong to a broker of the test's own: use the fix*"]
    )


def test_misuse_is_named(inner: pytest.Pytester) -> None:
    inner.makeini("[pytest]\nottla_settings = num.partitions: 4\n")
    inner.makepyfile(
        """
        import pytest

        def test_ini(ottla_broker): ...

        @pytest.mark.ottla(topic={"orders": 3})
        def test_unknown_argument(ottla_fresh_broker): ...

        @pytest.mark.ottla({"orders": 3})
        def test_argument_without_a_name(ottla_fresh_broker): ...

        @pytest.mark.ottla(topics=["orders"])
        def test_no_dict(ottla_fresh_broker): ...

        @pytest.mark.ottla(settings={"num.partitons": 3})
        def test_unknown_setting(ottla_fresh_broker): ...

        @pytest.mark.ottla(topics={"a b": 3})
        def test_name_of_topic(ottla_fresh_broker): ...
        """
    )
    result = inner.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(errors=6)
    result.stdout.fnmatch_lines(
        [
            "*ottla_settings: 'num.partitions: 4' is not key=value, as in message.max.bytes=1000000",
            "*@pytest.mark.ottla takes topics, settings, on_disk, tls, sasl, and not topic=*: say @pytest.mark.ottla(*",
            "*@pytest.mark.ottla takes topics, settings, on_disk, tls, sasl, and not arguments without a name: *",
            "*@pytest.mark.ottla: topics=[[]'orders'] is not a dict: say topics={\"orders\": 3}, *",
            "*did you mean num.partitions*",
            "*the topic a b cannot be created: *",
        ]
    )


def test_each_worker_has_its_own_broker(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        from pathlib import Path

        def test_port(ottla_broker, worker_id):
            ottla_broker.send("t", "x")
            assert len(ottla_broker.records("t")) == 1
            Path(__file__).with_name(worker_id).write_text(str(ottla_broker.port))
        """
    )
    result = inner.runpytest_subprocess("-n", "2", "--dist", "each")
    result.assert_outcomes(passed=2)
    assert (inner.path / "gw0").read_text() != (inner.path / "gw1").read_text()


def test_nothing_but_the_base_package_is_needed(inner: pytest.Pytester) -> None:
    inner.makeconftest(
        """
        import re, sys
        from importlib.metadata import PackageNotFoundError, packages_distributions, requires

        def plain(name):
            return re.sub(r"[-_.]+", "-", name).lower()

        def with_dependencies(name, found):
            if name not in found:
                found.add(name)
                try:
                    needed = requires(name) or []
                except PackageNotFoundError:
                    return found
                for each in needed:
                    if "extra ==" not in each:
                        with_dependencies(plain(re.match(r"[\\w.-]+", each)[0]), found)
            return found

        allowed = with_dependencies("ottla", set()) | with_dependencies("pytest", set())
        blocked = {
            module for module, distributions in packages_distributions().items()
            if not allowed & {plain(each) for each in distributions}
        }
        assert {"kafka", "pyarrow", "typer"} & blocked

        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in blocked:
                    raise ModuleNotFoundError(f"{name} is blocked", name=name)

        for name in [name for name in sys.modules if name.partition(".")[0] in blocked]:
            del sys.modules[name]
        sys.meta_path.insert(0, Blocker())
        """
    )
    inner.makepyfile(
        """
        from ottla.client.sync import Consumer, Producer

        def test_produce_and_consume(ottla_broker, ottla_topic):
            with Producer(bootstrap_servers=ottla_broker.bootstrap_servers) as producer:
                producer.send(ottla_topic, value=b"x").result()
            with Consumer(
                bootstrap_servers=ottla_broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
            ) as consumer:
                consumer.subscribe([ottla_topic])
                assert next(iter(consumer)).value == b"x"
        """
    )
    options = [f"-p{option}" for option in ("no:xdist", "no:timeout", "no:hypothesispytest", "no:cacheprovider")]
    result = inner.runpytest_subprocess(*options)
    result.assert_outcomes(passed=1)


def test_runs_without_it_pay_nothing() -> None:
    script = """
import pytest, sys, time
import _pytest.fixtures, _pytest.monkeypatch
before, begin = set(sys.modules), time.process_time_ns()
import ottla.testing.pytest_plugin
print((time.process_time_ns() - begin) / 1e6)
print(*sorted(set(sys.modules) - before))
"""
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    costs = []
    for _ in range(COST_ATTEMPTS):
        run = [sys.executable, "-c", script]
        cost, modules = subprocess.run(run, env=environment, check=True, capture_output=True, text=True).stdout.split(
            "\n"
        )[:2]
        assert modules.split() == ["ottla", "ottla.testing", "ottla.testing.pytest_plugin"]
        costs.append(float(cost))
        if min(costs) < MOST_COST_MS:
            break
    assert min(costs) < MOST_COST_MS, costs
