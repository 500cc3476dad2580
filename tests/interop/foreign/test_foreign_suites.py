"""The test suites of public projects, run against the test broker in place of the brokers that they start themselves.

The archives come from the package registry (requirements/foreign.lock); the one file for each suite that puts test
brokers in the place of its own fixtures is in `conftests`. What ends otherwise than the projects expect stands here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.foreign_suites import ForeignSuite, ForeignTest, run_suite

pytestmark = [pytest.mark.spec("U1"), pytest.mark.needs_foreign, pytest.mark.slow, pytest.mark.timeout(600)]

NO_ACLS = "the broker has no authorizer"
NO_SECURITY = "the test broker has neither TLS nor SASL"
NO_NEWER_PROTOCOL = "the protocol of KIP-848 is not served"
COORDINATOR_READY = "it expects the error of a coordinator that is not there yet; the test broker's is there at once"

ADMIN = "test/integration/test_admin_integration.py"
CONSUMER = "test/integration/test_consumer_integration.py"
PRODUCER = "test/integration/test_producer_integration.py"

SUITES = {
    "kafka-python": ForeignSuite(
        "kafka_python-3.0.12",
        "kafka_python",
        ["test/integration"],
        left_out={
            "test/integration/test_sasl_integration.py": NO_SECURITY,
            "test/integration/test_ssl_integration.py": NO_SECURITY,
        },
        differences={
            f"{ADMIN}::test_create_describe_delete_acls": NO_ACLS,
        },
    ),
    "kafka-python 2": ForeignSuite(
        "kafka_python-2.2.15",
        "kafka_python_2",
        ["test/integration"],
        left_out={"test/integration/test_sasl_integration.py": NO_SECURITY},
        differences={
            f"{ADMIN}::test_create_describe_delete_acls": NO_ACLS,
            f"{ADMIN}::test_describe_consumer_group_does_not_exist": COORDINATOR_READY,
        },
    ),
    "sentry-arroyo": ForeignSuite(
        "sentry_arroyo-2.48.0",
        "sentry_arroyo",
        ["tests/backends/test_kafka.py", "tests/backends/test_kafka_producer.py"],
        left_out={"tests/backends/test_kafka.py::TestKafkaStreamsKip848": NO_NEWER_PROTOCOL},
        differences={},
    ),
}
#: Tests of all suites together that open a connection to a test broker.
AT_LEAST_CONNECTED = 100
SAMPLE_SEED = 13
#: Tests of each suite in the normal run, which takes half a minute in all.
SAMPLE_SIZE = 6


def _failed(tests: list[ForeignTest]) -> dict[str, str]:
    return {each.name: each.message for each in tests if each.outcome == "failed"}


@pytest.mark.parametrize("name", SUITES)
def test_a_sample_of_the_suite_passes(name: str, tmp_path: Path) -> None:
    tests = run_suite(SUITES[name], tmp_path, sample=(SAMPLE_SEED, SAMPLE_SIZE))
    assert len(tests) == SAMPLE_SIZE
    assert any(each.connections for each in tests)
    failed = _failed(tests)
    if failed:
        # These tests have budgets of their own, and races (FINDINGS.md): what fails by chance does not fail twice.
        print(failed)
        (tmp_path / "again").mkdir()
        again = _failed(run_suite(SUITES[name], tmp_path / "again", sample=(SAMPLE_SEED, SAMPLE_SIZE)))
        assert failed.keys() & again.keys() == set(), (failed, again)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_whole_suites_pass_and_open_connections(tmp_path: Path) -> None:
    connected, passed = {}, {}
    for name, suite in SUITES.items():
        folder = tmp_path / suite.distribution
        folder.mkdir()
        tests = run_suite(suite, folder)
        failed = _failed(tests)
        assert sorted(failed) == sorted(suite.differences), (name, failed)
        connected[name] = sum(each.connections > 0 for each in tests)
        passed[name] = sum(each.connections > 0 and each.outcome == "passed" for each in tests)
    # For the log of the run.
    print("tests that opened a connection:", connected, "of which passed:", passed)
    assert sum(connected.values()) >= AT_LEAST_CONNECTED
