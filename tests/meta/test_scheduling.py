"""Which worker of a parallel run gets which tests, and the ports that workers share out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support.ports import free_port
from support.scheduling import SHORT, ByDirectory, TestTimes, family_of, workers_for

CLIENTS = [f"tests/interop/clients/test_a.py::test_{number}" for number in range(3)]
GROUPS = [f"tests/interop/groups/test_b.py::test_{number}" for number in range(3)]
UNITS = [f"tests/unit/net/test_c.py::test_{number}" for number in range(3)]
SHARED = [f"tests/interop/test_d.py::test_{number}" for number in range(3)]


class FakeWorker:
    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.sent.append(list(indices))

    def shutdown(self) -> None:
        self.shutting_down = True


def started(
    root: Path, tests: list[str], workers: int, seconds: dict[str, float] | None = None, *, tools: bool = True
) -> tuple[ByDirectory, list[FakeWorker]]:
    for test in tests:
        path = root / test.partition("::")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('@pytest.fixture(scope="module")\n' if test in SHARED else "")
    scheduler = ByDirectory(workers, seconds or {}, root, lambda: tools)
    nodes = [FakeWorker() for _ in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
        assert not scheduler.collection_is_completed
        scheduler.add_node_collection(node, tests)
    assert scheduler.collection_is_completed
    scheduler.schedule()
    return scheduler, nodes


def run_to_the_end(scheduler: ByDirectory, nodes: list[FakeWorker]) -> list[list[int]]:
    """Each worker runs its tests in turns, as pytest-xdist has it: the last one only when told to end."""
    ran: list[list[int]] = [[] for _ in nodes]
    while True:
        moved = False
        for node, done in zip(nodes, ran, strict=True):
            given = [index for indices in node.sent for index in indices]
            if len(done) < len(given) - (not node.shutting_down):
                done.append(given[len(done)])
                scheduler.mark_test_complete(node, done[-1])
                moved = True
        if not moved:
            return ran


def test_every_test_runs_once(tmp_path: Path) -> None:
    tests = [*CLIENTS, *GROUPS, *UNITS, *SHARED]
    scheduler, nodes = started(tmp_path, tests, 3)
    ran = run_to_the_end(scheduler, nodes)
    assert sorted(index for one in ran for index in one) == list(range(len(tests)))
    assert scheduler.tests_finished
    assert not scheduler.has_pending
    assert all(node.shutting_down for node in nodes)


def test_a_worker_stays_with_its_directory(tmp_path: Path) -> None:
    tests = [*CLIENTS, *GROUPS]
    scheduler, nodes = started(tmp_path, tests, 2)
    ran = run_to_the_end(scheduler, nodes)
    assert [{family_of(tests[index]) for index in one} for one in ran] == [
        {"tests/interop/clients/"},
        {"tests/interop/groups/"},
    ]


def test_a_free_worker_helps_others(tmp_path: Path) -> None:
    scheduler, nodes = started(tmp_path, GROUPS, 2)
    assert scheduler.has_pending
    assert [len(node.sent) for node in nodes] == [2, 1]
    run_to_the_end(scheduler, nodes)
    assert scheduler.tests_finished


def test_what_waits_comes_before_what_computes_and_the_longest_first(tmp_path: Path) -> None:
    tests = [*UNITS, *CLIENTS]
    scheduler, nodes = started(tmp_path, tests, 1, {CLIENTS[2]: 9.0, CLIENTS[0]: 5.0})
    assert run_to_the_end(scheduler, nodes) == [[5, 3, 4, 0, 1, 2]]


def test_what_needs_no_other_program_comes_first_while_they_are_set_up(tmp_path: Path) -> None:
    tests = [*CLIENTS, *UNITS]
    scheduler, nodes = started(tmp_path, tests, 1, {CLIENTS[2]: 9.0, CLIENTS[0]: 5.0}, tools=False)
    assert run_to_the_end(scheduler, nodes) == [[3, 4, 5, 2, 0, 1]]


def test_files_whose_tests_share_something_are_not_divided(tmp_path: Path) -> None:
    _, nodes = started(tmp_path, [*SHARED, *UNITS], 2)
    assert [node.sent for node in nodes] == [[[0, 1, 2]], [[3, 4, 5]]]


def test_what_a_crashed_worker_had_not_begun_is_run_by_others(tmp_path: Path) -> None:
    tests = [*SHARED, *CLIENTS]
    scheduler, (one, other) = started(tmp_path, tests, 2)
    assert one.sent == [[0, 1, 2]]
    assert scheduler.remove_node(one) == SHARED[0]
    ran = run_to_the_end(scheduler, [other])
    assert sorted(ran[0]) == [1, 2, 3, 4, 5]
    assert scheduler.tests_finished


def test_a_worker_in_the_place_of_a_crashed_one(tmp_path: Path) -> None:
    scheduler, (one,) = started(tmp_path, SHARED, 1)
    assert scheduler.remove_node(one) == SHARED[0]
    another = FakeWorker()
    scheduler.add_node(another)
    scheduler.add_node_collection(another, SHARED)
    scheduler.schedule()
    assert run_to_the_end(scheduler, [another]) == [[1, 2]]


def test_workers_that_find_different_tests_are_reported(tmp_path: Path) -> None:
    scheduler = ByDirectory(2, {}, tmp_path, lambda: True)
    one, other = FakeWorker(), FakeWorker()
    scheduler.add_node(one)
    scheduler.add_node(other)
    scheduler.add_node_collection(one, CLIENTS)
    with pytest.raises(RuntimeError, match=r"workers found different tests.*test_2"):
        scheduler.add_node_collection(other, CLIENTS[:2])


@pytest.mark.parametrize(
    ("arguments", "quick", "workers"),
    [
        (["tests"], False, 4),
        (["tests"], True, 3),
        (["tests/unit", "tests/golden/wire"], False, 3),
        (["tests/unit", "tests/interop"], False, 4),
        (["tests/interop/test_kcat.py"], False, 0),
        (["tests/unit/net/test_connection.py::test_it", "tests/meta/test_run.py"], False, 0),
    ],
)
def test_how_many_workers(arguments: list[str], quick: bool, workers: int) -> None:
    assert workers_for(arguments, quick=quick, cores=2) == workers


def test_times_are_kept_for_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "times.json"
    assert TestTimes(path).earlier == {}
    for test in ("a", "b"):
        times = TestTimes(path)
        times.add(test, 0.5)
        times.add(test, 0.25)
        times.write()
    assert TestTimes(path).earlier == {"a": 0.75, "b": 0.75}
    path.write_text("{")
    assert TestTimes(path).earlier == {}


def test_workers_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
    ports = {}
    for worker in ("gw0", "gw1", "gw3"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        ports[worker] = {free_port() % 4 for _ in range(5)}
    assert sorted(map(len, ports.values())) == [1, 1, 1]
    assert len(set.union(*ports.values())) == 3


def test_the_short_directories_are_there() -> None:
    project = Path(__file__).resolve().parents[2]
    assert all((project / folder).is_dir() for folder in SHORT)
