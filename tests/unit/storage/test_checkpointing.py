from __future__ import annotations

from uuid import UUID

import pytest

from ottla.env.disk import Disk
from support.storage_logs import NOW_MS, append
from support.storage_managers import ManagerSetup

TOPIC_ID = UUID("c0ffee00-1234-4abc-8def-0123456789ff")


@pytest.mark.spec("L9", "R7")
@pytest.mark.parametrize("change", ["deleted", "made again", "cut", "begun anew", "added", "closed"])
def test_a_checkpoint_made_in_steps_has_logs_as_they_are_at_its_end(
    ground: tuple[Disk, str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A former recovery point would have a kill take records for stored that are not."""
    monkeypatch.setattr("ottla.storage.checkpointing.LOGS_PER_SLICE", 1)
    setup = ManagerSetup(ground[0], f"{ground[1]}/logs")
    manager = setup.opened()
    for index in range(3):
        append(manager.create("orders", TOPIC_ID, index))
    manager.checkpoints.write()
    for log in manager.logs():
        append(log)
        log.flush(NOW_MS)
    steps = manager.checkpoints.write_in_slices("recovery-point-offset-checkpoint")
    next(steps)
    log = manager.get("orders", 0)
    assert log is not None
    if change == "cut":
        manager.truncate(log, 3)
    elif change == "begun anew":
        manager.truncate_fully(log, 2)
    elif change == "added":
        manager.create("orders", TOPIC_ID, 3)
    elif change == "closed":
        manager.close()
    else:
        manager.delete("orders", 0)
        if change == "made again":
            manager.create("orders", TOPIC_ID, 0)
    for _ in steps:
        pass
    found = setup.read("recovery-point-offset-checkpoint").decode().splitlines()[2:]
    of_first = {"deleted": [], "made again": ["orders 0 0"], "cut": ["orders 0 3"], "begun anew": ["orders 0 2"]}
    wanted = [*of_first.get(change, ["orders 0 6"]), "orders 1 6", "orders 2 6"]
    if change == "added":
        wanted.append("orders 3 0")
    assert sorted(found) == wanted
    if change != "closed":
        manager.close()
