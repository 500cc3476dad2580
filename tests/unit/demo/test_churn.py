"""The members of the demo's group end with it, whenever it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.demo import churn, member
from ottla.demo.processes import Member

pytestmark = pytest.mark.spec("D6")


@pytest.mark.slow
def test_a_member_ends_whose_starter_is_gone_before_it_looks() -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    starter = {"topic": "t", "settings": settings, "parent": 0}
    done = subprocess.run(
        [sys.executable, str(Path(member.__file__))],
        input=json.dumps(starter) + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (done.returncode, json.loads(done.stdout)["event"]) == (0, "closed")


def test_a_member_that_starts_while_the_script_is_stopped_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    played = churn.Churn("unused", "t", 0.0, lambda text: None)

    def start(self: Member, *arguments: Any) -> None:
        played.stop()  # it does not see the process yet
        ended.clear()

    monkeypatch.setattr(Member, "start", start)
    monkeypatch.setattr(Member, "leave", lambda self: ended.append(self.name))
    played.work()
    assert ended == ["anna"]
