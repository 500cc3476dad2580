"""The test broker's start and stop under misuse: from several threads, interrupted, cancelled, in a forked process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ottla.broker.server
import ottla.testing.seeds
from ottla.testing import Broker, TestBrokerError
from support.waiting import wait_until

pytestmark = pytest.mark.spec("U1")

THREADS = 8
#: So long a start or a stop may take that was interrupted.
INTERRUPTED_AGAIN_S = 60


#: Threads that were there before a test: other tests of this process may share a test broker for the whole session.
OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Remember the threads of others."""
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def its_threads() -> list[str]:
    """Threads of brokers that the test has started."""
    return [each.name for each in threading.enumerate() if each.name == "ottla-test-broker" and each not in OTHERS]


def outcomes(call: Callable[[], object]) -> list[str]:
    """What many threads get from a call that they make at the same time."""
    together = threading.Barrier(THREADS)

    def outcome() -> str:
        together.wait()
        try:
            call()
        except Exception as error:
            return str(error)
        return "done"

    with ThreadPoolExecutor(THREADS) as pool:
        return sorted(future.result() for future in [pool.submit(outcome) for _ in range(THREADS)])


def test_of_many_starts_at_one_time_one_succeeds() -> None:
    broker = Broker()
    assert outcomes(broker.start) == ["done"] + ["this test broker is running already"] * (THREADS - 1)
    assert its_threads() == ["ottla-test-broker"]
    broker.stop()
    assert its_threads() == []


def test_many_stops_at_one_time_all_return_when_it_is_stopped() -> None:
    broker = Broker().start()
    assert outcomes(broker.stop) == ["done"] * THREADS
    assert its_threads() == []


def test_waits_and_calls_under_way_say_that_it_was_stopped() -> None:
    broker = Broker({"t": 1}).start()
    waiting = broker.submit_wait("records", "t", 1, 60.0)
    broker.stop()
    with pytest.raises(TestBrokerError, match="the test broker was stopped in the meantime"):
        waiting.result(60)


def test_a_wait_in_a_loop_of_its_own_is_not_cancelled_by_the_stop() -> None:
    async def used() -> None:
        async with Broker({"t": 1}) as broker:
            waiting = asyncio.ensure_future(broker.aio.wait_for_records("t", 1, timeout_s=60.0))
            await asyncio.sleep(0)
            await asyncio.to_thread(broker.stop)
            with pytest.raises(TestBrokerError, match="the test broker was stopped in the meantime"):
                await waiting

    asyncio.run(used())


def test_no_call_hangs_that_comes_with_the_stop() -> None:
    for _ in range(20):
        broker = Broker({"t": 1}).start()
        has_begun = threading.Event()

        def use(broker: Any = broker, has_begun: threading.Event = has_begun) -> None:
            while True:
                broker.topics()
                has_begun.set()

        with ThreadPoolExecutor(2) as pool:
            users = [pool.submit(use) for _ in range(2)]
            has_begun.wait(60)
            broker.stop()
            assert all(isinstance(user.exception(10), TestBrokerError) for user in users)


def test_a_rule_of_a_stopped_broker_names_the_cause() -> None:
    with Broker() as broker:
        rule = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    rule.remove()
    with pytest.raises(TestBrokerError, match="the test broker is stopped"):
        rule.wait_until_fired()


def test_a_start_that_a_topic_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TestBrokerError, match="the topic no name cannot be created"):
        Broker({"no name": 1}, data=tmp_path / "data").start()
    assert its_threads() == []
    with Broker({"t": 1}, data=tmp_path / "data") as broker:
        assert broker.topics() == {"t": 1}


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ottla.broker.server, "open_coordination"),
        (ottla.broker.server.Broker, "_join_cluster"),
        (ottla.testing.seeds, "create_topics"),
    ],
)
def test_a_start_that_is_interrupted_leaves_nothing(
    owner: object, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_come = threading.Event()

    async def never(*_: object) -> None:
        has_come.set()
        await asyncio.Event().wait()

    broker = Broker({"t": 1}, data=tmp_path / "data")
    with monkeypatch.context() as changed:
        changed.setattr(owner, name, never)
        with interrupting(has_come), pytest.raises(KeyboardInterrupt):
            broker.start()
    assert its_threads() == []
    with broker:
        assert broker.topics() == {"t": 1}


def test_a_stop_that_is_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_come = threading.Event()
    may_go_on = threading.Event()
    broker = Broker({"t": 1}, data=tmp_path / "data").start()
    stop_requests = broker.server.dispatcher.stop

    async def slowly() -> None:
        has_come.set()
        await asyncio.to_thread(may_go_on.wait)
        await stop_requests()

    monkeypatch.setattr(broker.server.dispatcher, "stop", slowly, raising=False)
    with interrupting(has_come), pytest.raises(KeyboardInterrupt):
        broker.stop()
    may_go_on.set()
    wait_until(lambda: its_threads() == [], "the thread to end")
    with broker:
        assert broker.topics() == {"t": 1}


@contextmanager
def interrupting(has_come: threading.Event) -> Iterator[None]:
    """Interrupt the main thread, as Ctrl-C does, once the event has come; again after a while where that was lost.

    Python drops an interrupt that comes in a destructor or in a callback of the collector.
    """
    main = threading.main_thread().ident
    assert main is not None
    over = threading.Event()

    def interrupt() -> None:
        assert has_come.wait(60)
        while not over.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            over.wait(INTERRUPTED_AGAIN_S)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark has a handler of its own
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, former)


def test_a_start_that_is_cancelled_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Broker.start

    async def used() -> None:
        has_come = asyncio.Event()
        may_go_on = threading.Event()
        loop = asyncio.get_running_loop()

        def slowly(broker: Any) -> Any:
            loop.call_soon_threadsafe(has_come.set)
            may_go_on.wait(10)
            return start(broker)

        monkeypatch.setattr(Broker, "start", slowly)
        starting = asyncio.ensure_future(Broker().__aenter__())
        await has_come.wait()
        starting.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(used())
    assert its_threads() == []


def _use_after_fork(broker: Any, told: Any) -> None:
    try:
        broker.topics()
    except TestBrokerError as error:
        told.send(str(error))
    broker.stop()
    with broker:
        told.send(str(broker.topics()))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_is_told_that_the_broker_is_not_there() -> None:
    with Broker({"t": 1}) as broker:
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_use_after_fork, args=(broker, there))
        child.start()
        try:
            assert here.poll(20), "the forked process hangs"
            assert here.recv() == (
                f"the test broker runs in the process {os.getpid()}, of which this one is a fork: use clients of it "
                "here, or start a broker here"
            )
            assert here.poll(20), "the forked process hangs"
            assert here.recv() == "{'t': 1}"
        finally:
            child.join(60)
            child.kill()
        assert broker.topics() == {"t": 1}
