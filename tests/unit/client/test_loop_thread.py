from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from ottla.client import loop_thread
from ottla.client.errors import ClientClosedError, IllegalStateError
from ottla.client.loop_thread import LoopThread
from ottla.env import threads
from support.waiting import wait_until

PATIENCE_S = 60.0


def in_thread(work, *args):
    """Run it in a thread that may hang; a function that waits for its result or its error."""
    outcome = Future()

    def run():
        try:
            outcome.set_result(work(*args))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return lambda: outcome.result(PATIENCE_S)


@pytest.fixture
def thread():
    made = LoopThread("test-client")
    yield made
    made.close()


@pytest.fixture
def thread_errors(monkeypatch):
    """What ends threads."""
    errors = []
    monkeypatch.setattr(threading, "excepthook", lambda failed: errors.append(failed.exc_value))
    return errors


async def double(number):
    await asyncio.sleep(0)
    return 2 * number, threading.current_thread().name


async def fail():
    raise KeyError("mine")


def test_results_and_errors_come_back(thread):
    assert thread.run(double, 4) == (8, "test-client")
    with pytest.raises(KeyError, match="mine"):
        thread.run(fail)


@pytest.mark.parametrize("how", ["run", "run_serving"])
def test_work_that_cannot_begin_is_an_error_of_the_caller(thread, how):
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        in_thread(getattr(thread, how), double)()
    assert thread.run(double, 4)[0] == 8


def test_call_does_not_wait(thread):
    done = threading.Event()
    thread.call(done.set)
    assert done.wait(60)


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


def test_a_forked_child_is_reported(thread):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=use_it, args=(thread, answers))
    child.start()
    assert "opened in another process" in answers.get(timeout=60)
    child.join(60)
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


def test_work_of_a_caller_that_was_interrupted_twice_ends_before_the_next(thread, monkeypatch):
    seen = []
    may_end = SimpleQueue()

    async def slow_to_end():
        try:
            await thread.in_caller(interrupt)
        finally:
            may_end.get(timeout=60)
            seen.append("ended")

    async def following():
        seen.append("next")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ottla.client.loop_thread.Latch.wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            thread.run_serving(slow_to_end)
    assert seen == []
    may_end.put(None)
    thread.finish_left_over()
    assert seen == ["ended"]
    thread.run_serving(following)
    assert seen == ["ended", "next"]


@pytest.mark.parametrize("how", ["run", "run_serving"])
def test_who_waits_is_notified_of_the_close(thread, how):
    begun = threading.Event()

    async def forever():
        begun.set()
        await asyncio.get_running_loop().create_future()

    result = in_thread(getattr(thread, how), forever)
    assert begun.wait(PATIENCE_S)
    thread.close()
    with pytest.raises(ClientClosedError, match="closed while this call was under way"):
        result()


def test_what_is_handed_over_while_it_closes_is_done_or_refused():
    for _ in range(20):
        thread = LoopThread("test-client")
        results = [in_thread(thread.run, double, 1) for _ in range(3)]
        thread.close()
        for result in results:
            with contextlib.suppress(ClientClosedError):
                assert result()[0] == 2


@pytest.mark.parametrize("how", ["run", "run_serving"])
def test_the_loop_does_not_wait_for_itself(thread, how):
    async def nested():
        with pytest.raises(IllegalStateError, match="would wait for the thread that it was made in"):
            getattr(thread, how)(double, 1)
        return "told"

    assert in_thread(thread.run, nested)() == "told"


def test_who_is_served_closes(thread):
    async def work():
        await thread.in_caller(thread.close)

    with pytest.raises(ClientClosedError):
        in_thread(thread.run_serving, work)()


def test_several_finish_it_and_the_closing_is_run_once():
    closings = []

    async def closing():
        closings.append(1)
        await asyncio.sleep(0)

    thread = LoopThread("test-client", closing)
    for finished in [in_thread(thread.finish) for _ in range(4)]:
        finished()
    assert closings == [1]


def test_a_closing_that_fails_ends_the_thread_all_the_same():
    thread = LoopThread("test-client-of-bad-code", fail)
    with pytest.raises(KeyError, match="mine"):
        thread.finish()
    thread.finish()
    assert not any(each.name == "test-client-of-bad-code" for each in threading.enumerate())


def named(name):
    return [each for each in threading.enumerate() if each.name == name]


@pytest.mark.parametrize("when", ["before the loop is made", "after it"])
def test_an_interrupt_while_it_begins_leaves_no_thread(monkeypatch, when):
    """The thread makes the loop, so that an interrupt, which meets the caller, leaves none that is half made."""
    goes_on, makers, wait = threading.Event(), [], threads.Latch.wait

    def make():
        makers.append(threading.current_thread().name)
        assert goes_on.wait(PATIENCE_S)
        return asyncio.SelectorEventLoop()

    def interrupted(latch):
        monkeypatch.setattr(threads.Latch, "wait", wait)
        if when == "after it":
            goes_on.set()
            wait_until(latch.is_set, "the loop")
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "new_event_loop", make)
    monkeypatch.setattr(threads.Latch, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LoopThread("test-client-interrupted")
    goes_on.set()
    wait_until(lambda: not named("test-client-interrupted"), "the end of the thread")
    assert makers == ["test-client-interrupted"]


def test_a_caller_that_gives_up_just_when_the_loop_is_made_leaves_no_error(thread_errors):
    beginning = loop_thread._Beginning()
    beginning.over = SimpleNamespace(set=beginning.give_up)
    serving = threading.Thread(target=loop_thread._serve, args=(beginning,))
    serving.start()
    serving.join(PATIENCE_S)
    assert beginning.loop.is_closed()
    assert thread_errors == []


def test_a_loop_that_cannot_be_made_is_reported(monkeypatch):
    def fails():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", fails)
    with pytest.raises(OSError, match="Too many open files"):
        LoopThread("test-client-without-files")
    wait_until(lambda: not named("test-client-without-files"), "the end of the thread")


def is_waiting(thread_id):
    """Whether a thread waits for a result of a loop thread."""
    inner = frame = sys._current_frames()[thread_id]
    while frame is not None and frame.f_code.co_filename != loop_thread.__file__:
        frame = frame.f_back
    return frame is not None and inner.f_code.co_name in ("wait", "run_serving", "next_call")


@pytest.mark.parametrize("how", ["run", "run_serving"])
def test_a_signal_that_the_wait_does_not_notice_is_handled_soon(thread, how):
    """As where it comes just before the wait: it is delivered to another thread here."""
    handled, tried = threading.Event(), threading.Event()
    in_time = []

    async def until_tried():
        return await asyncio.to_thread(tried.wait, PATIENCE_S)

    def interrupt():
        wait_until(lambda: is_waiting(reader), "the caller's wait")
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        in_time.append(handled.wait(5))
        tried.set()

    before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.set())
    reader = threading.get_ident()
    try:
        other = threading.Thread(target=interrupt)
        other.start()
        assert getattr(thread, how)(until_tried)
        other.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert in_time == [True]


@pytest.mark.parametrize("how", ["run", "run_serving"])
def test_a_long_wait_and_a_timeout_of_the_work(thread, how, monkeypatch):
    monkeypatch.setattr(loop_thread, "SIGNAL_POLL_S", 0.001)
    monkeypatch.setattr(threads, "SIGNAL_POLL_S", 0.001)

    caller = threading.get_ident()

    async def slow():
        await asyncio.to_thread(wait_until, lambda: is_waiting(caller), "the caller's wait")
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        getattr(thread, how)(slow)


def interrupted_at(place, call):
    """Call it, and interrupt it before its instruction of this number; returns whether it had so many.

    Python's own modules count, too: a signal's handler may run in the midst of them. What Python calls while it cleans
    up does not, be it what others call at collections (Hypothesis does): exceptions of it are dropped.
    """
    numbers = itertools.count()
    reached = False

    def trace(frame, event, argument):
        nonlocal reached
        if frame.f_code.co_name in ("_remove", "__del__", "gc_callback"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(numbers) == place:
            reached = True
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return reached


@pytest.mark.slow
@pytest.mark.spec("C1")
@pytest.mark.parametrize("how", ["run", "run_serving", "run_serving, interrupted already"])
def test_callers_that_are_interrupted_anywhere_get_that_interrupt_and_go_on(thread, how):
    async def soon():
        await asyncio.to_thread(len, ())

    async def interrupting():
        await thread.in_caller(interrupt)

    def interrupt():
        raise KeyboardInterrupt

    def call():
        if how == "run":
            thread.run(soon)
        else:
            thread.run_serving(interrupting if "already" in how else soon)

    for place in itertools.count():
        if not interrupted_at(place, call):
            break
        assert thread.run_serving(double, 1) == (2, "test-client")
        assert thread.run(double, 2) == (4, "test-client")
    assert place > 100


ENDS_BY_AN_ERROR = """
import asyncio
from ottla.client.loop_thread import LoopThread

def rows():
    thread = LoopThread("rows", lambda: asyncio.sleep(0))
    try:
        yield 1
    finally:
        thread.finish()

def changed(source):
    for row in source:
        raise ValueError("of the user")

changed(rows())
"""


@pytest.mark.slow
def test_a_client_that_python_closes_at_its_end_does_not_hold_it_up():
    """The error's traceback keeps the generator, so its `finally` runs when no other thread does any more."""
    command = [sys.executable, "-c", ENDS_BY_AN_ERROR]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ValueError: of the user")


def test_work_is_refused_while_python_ends(thread, monkeypatch):
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    with pytest.raises(ClientClosedError, match="Python is ending"):
        thread.run(asyncio.sleep, 0)
    thread.finish()
    monkeypatch.undo()
    assert thread.run(asyncio.sleep, 0, "goes on") == "goes on"
