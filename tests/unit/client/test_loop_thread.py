from __future__ import annotations

import asyncio
import multiprocessing
import threading

import pytest

from ottla.client.errors import ClientClosedError
from ottla.client.loop_thread import LoopThread


@pytest.fixture
def thread():
    made = LoopThread("test-client")
    yield made
    made.close()


async def double(number):
    await asyncio.sleep(0)
    return 2 * number, threading.current_thread().name


async def fail():
    raise KeyError("mine")


def test_results_and_errors_come_back(thread):
    assert thread.run(double, 4) == (8, "test-client")
    with pytest.raises(KeyError, match="mine"):
        thread.run(fail)


def test_call_does_not_wait(thread):
    done = threading.Event()
    thread.call(done.set)
    assert done.wait(10)


def test_closed(thread):
    thread.close()
    thread.close()
    with pytest.raises(ClientClosedError, match="is closed"):
        thread.run(double, 1)
    with pytest.raises(ClientClosedError):
        thread.call(lambda: None)
    assert not any(each.name == "test-client" for each in threading.enumerate())


def use_it(thread, answers):
    try:
        thread.run(double, 1)
    except ClientClosedError as error:
        answers.put(str(error))
    thread.close()


def test_a_forked_child_is_told(thread):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=use_it, args=(thread, answers))
    child.start()
    assert "opened in another process" in answers.get(timeout=20)
    child.join(20)
    assert child.exitcode == 0
    assert thread.run(double, 1)[0] == 2, "the parent's goes on"


def test_the_waiting_caller_serves_the_loop(thread):
    async def work():
        inner = await thread.in_caller(lambda: thread.run_serving(nested))
        try:
            await thread.in_caller(int, "no number")
        except ValueError as error:
            return inner, type(error)

    async def nested():
        return await thread.in_caller(lambda: threading.current_thread().name)

    assert thread.run_serving(work) == (threading.current_thread().name, ValueError)
    with pytest.raises(KeyError, match="mine"):
        thread.run_serving(fail)


def test_an_interrupted_caller_ends_the_work(thread):
    ended = []

    async def forever():
        try:
            await thread.in_caller(interrupt)
        finally:
            ended.append(True)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        thread.run_serving(forever)
    assert ended == [True]
    assert thread.run_serving(double, 1) == (2, "test-client")
