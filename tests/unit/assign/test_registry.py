"""Assignors by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ottla.assign.assignor import PartitionAssignor, RebalanceProtocol
from ottla.assign.range import RangeAssignor
from ottla.assign.registry import BUILT_IN, AssignorError, common_protocol, load_assignors
from ottla.assign.roundrobin import RoundRobinAssignor

EAGER, COOPERATIVE = RebalanceProtocol

CUSTOM = """
from ottla.assign.assignor import PartitionAssignor, RebalanceProtocol

class Mine(PartitionAssignor):
    name = "mine"
    supported_protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

    def assign(self, cluster, subscriptions):
        return {}

class Moving(Mine):
    name = "moving"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

class Range(Mine):
    name = "range"

class Nameless(Mine):
    name = ""

class Greedy(Mine):
    def __init__(self, more):
        pass

class Abstract(PartitionAssignor):
    name = "abstract"

something = 5
"""


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with assignors of a user's own."""
    (tmp_path / "their_assignors.py").write_text(CUSTOM)
    (tmp_path / "their_broken.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_assignors", raising=False)
    return "their_assignors"


@pytest.mark.spec("A5")
def test_several_in_order_of_preference_by_any_kind_of_name():
    loaded = load_assignors(["org.apache.kafka.clients.consumer.RoundRobinAssignor", " range "])
    assert [type(assignor) for assignor in loaded] == [RoundRobinAssignor, RangeAssignor]


def test_built_in_ones_have_kafka_s_names():
    assert all(BUILT_IN[name].name == name for name in BUILT_IN)
    assert list(BUILT_IN) == ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.mark.spec("A6")
def test_custom_ones_by_dotted_path(custom: str):
    (loaded,) = load_assignors([f"{custom}.Mine"])
    assert isinstance(loaded, PartitionAssignor)
    assert (loaded.name, loaded.version, loaded.subscription_user_data(["t"])) == ("mine", 0, None)


@pytest.mark.spec("A4", "A5")
def test_two_bounces_from_eager_to_cooperative():
    """While the eager one is there every member is eager; once it is gone, they are cooperative."""
    steps = (["range"], ["cooperative-sticky", "range"], ["cooperative-sticky"])
    assert [common_protocol(load_assignors(names)) for names in steps] == [EAGER, EAGER, COOPERATIVE]


@pytest.mark.spec("A6")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no assignor is named; there are range"),
        (["rang"], "no assignor is called 'rang'; did you mean range?"),
        (["RoundRobin"], "no assignor is called 'RoundRobin'; did you mean roundrobin?"),
        (["zzz"], r"no assignor is called 'zzz'; there are range, .* dotted path"),
        (
            ["org.apache.kafka.clients.consumer.RangeAssigner"],
            "did you mean org.apache.kafka.clients.consumer.RangeAssignor?",
        ),
        (["nowhere.Mine"], "'nowhere.Mine' cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        (["their_broken.Mine"], "cannot be imported: ModuleNotFoundError: No module named 'not_installed_anywhere'"),
        (["their_assignors.Yours"], "the module their_assignors has no Yours"),
        (["their_assignors.something"], "their_assignors.something is not an assignor: derive it from"),
        (["their_assignors.Greedy"], "'their_assignors.Greedy' cannot be made without arguments: TypeError"),
        (["their_assignors.Abstract"], "'their_assignors.Abstract' cannot be made without arguments: TypeError"),
        (["their_assignors.Nameless"], "'their_assignors.Nameless' has no name"),
        (["range", "their_assignors.Range"], "'range' belongs to more than one of range, their_assignors.Range"),
        (["range", "range"], "'range' belongs to more than one of range, range"),
        (["range", "their_assignors.Moving"], r"in common: range \(EAGER\), moving \(COOPERATIVE\)"),
        (["..x"], "cannot be imported"),
        ([""], "no assignor is called ''"),
    ],
)
@pytest.mark.usefixtures("custom")
def test_what_cannot_be_is_refused_with_its_cause(names: list[str], message: str):
    with pytest.raises(AssignorError, match=message.replace("?", r"\?") if "did you mean" in message else message):
        load_assignors(names)
