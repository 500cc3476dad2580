"""What docs/assignors.md shows works as shown."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest

from ottla.assign.assignor import ClusterMetadata, MemberSubscription, SubscribedTopic
from ottla.assign.consumer_protocol import HIGHEST_VERSION, Subscription
from ottla.assign.registry import BUILT_IN, load_assignors
from ottla.assign.threads import THREAD_ASSIGNORS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "assignors.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.spec("A6")


@pytest.fixture
def my_assignors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's first example, saved as a module of the user's."""
    (tmp_path / "my_assignors.py").write_text(BLOCKS[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_assignors", raising=False)
    return "my_assignors.RandomAssignor"


def test_the_random_assignor_assigns(my_assignors: str) -> None:
    """Each partition goes to one subscriber, who that is differs from time to time."""
    random.seed(1)
    (assignor,) = load_assignors([my_assignors])
    cluster = ClusterMetadata({"t": SubscribedTopic(50), "u": SubscribedTopic(5), "v": SubscribedTopic(5)})
    members = {
        name: MemberSubscription(Subscription(HIGHEST_VERSION, topics, None, {}, -1, None))
        for name, topics in {"a": ("t", "u", "gone"), "b": ("t",), "c": ()}.items()
    }
    first, second = (assignor.assign(cluster, members) for _ in range(2))
    assert first.keys() == {"a", "b", "c"}
    assert sorted(first["a"].partitions["t"] + first["b"].partitions["t"]) == list(range(50))
    assert first["a"].partitions["u"] == tuple(range(5))
    assert first["c"].partitions == {}
    assert first != second


@pytest.mark.usefixtures("my_assignors")
def test_the_line_that_loads_it(capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[1], {})
    assert f"# {capsys.readouterr().out}" == BLOCKS[1].splitlines()[-1] + "\n"
    assert len(BLOCKS) == 2


def test_every_assignor_is_named() -> None:
    assert [name for name in (*BUILT_IN, *THREAD_ASSIGNORS) if f"`{name}`" not in PAGE] == []
