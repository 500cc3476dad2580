"""The disk of a simulated machine: killed processes leave what they wrote, a loss of power what was forced."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ottla.env.disk import DiskError
from ottla.sim.virtual_loop import VirtualTimeLoop, run_in_virtual_time
from ottla.testing.disk_power import nothing_more
from support.simulated_cluster.machine_disk import MachineDisk, SimulatedExecutor


def written() -> MachineDisk:
    """A disk with the file /d/a, of which two bytes are forced, and two are not."""
    machine = MachineDisk(lambda: 5)
    machine.disk.mkdirs("/d")
    file = machine.disk.open("/d/a", create=True)
    file.append([b"ab"])
    file.flush()
    for directory in ("/d", ""):
        machine.disk.fsync_dir(directory)
    file.append([b"cd"])
    return machine


def test_a_killed_process_leaves_all_that_it_wrote_and_nothing_more() -> None:
    machine = written()
    former = machine.disk.open("/d/a")
    machine.process_ended()
    former.append([b"ef"])
    assert machine.disk.read_bytes("/d/a") == b"abcd"
    assert list(machine.walk("")) == [("/d/a", b"abcd")]


@pytest.mark.parametrize("is_killed_before", [False, True])
def test_power_takes_what_was_not_forced_also_by_an_earlier_process(is_killed_before: bool) -> None:
    machine = written()
    if is_killed_before:
        machine.process_ended()
    machine.power_lost(nothing_more)
    assert machine.disk.read_bytes("/d/a") == b"ab"
    machine.power_lost(nothing_more)
    assert machine.disk.read_bytes("/d/a") == b"ab", "what is found is forced"


def test_a_full_disk_stays_full_when_the_process_ends() -> None:
    machine = written()
    machine.disk.capacity = 0
    machine.process_ended()
    with pytest.raises(DiskError) as refused:
        machine.disk.open("/d/a").append([b"x"])
    assert refused.value.errno == errno.ENOSPC


def test_jobs_of_a_slow_disk_take_their_time() -> None:
    async def story() -> None:
        executor = SimulatedExecutor()
        assert await executor.submit(int, "7") == 7
        assert loop.time() == 0.0
        executor.delay_s = 2.0
        assert await executor.submit(int, "7") == 7
        assert loop.time() == 2.0
        with pytest.raises(ValueError, match="invalid"):
            await executor.submit(int, "x")
        done: list[object] = []
        executor.call(lambda: 8, lambda result, error: done.append((result, error)))
        await asyncio.sleep(1.0)  # sleep: virtual
        assert not done
        await asyncio.sleep(1.5)  # sleep: virtual
        assert done == [(8, None)]

    loop = VirtualTimeLoop()
    run_in_virtual_time(story(), loop)
