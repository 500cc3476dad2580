"""The table of states: complete, and every state is reached and left as it says."""

from __future__ import annotations

import pytest

from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.classic.states import RULES, GroupState
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("G1")


def test_every_state_has_its_row_and_its_words():
    assert set(RULES) == set(GroupState)
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


def test_the_exits_are_apache_kafkas():
    exits = {state.value: {to.value for to in rules.exits} for state, rules in RULES.items()}
    assert exits == {
        "Empty": {"PreparingRebalance", "Dead"},
        "PreparingRebalance": {"CompletingRebalance", "Empty", "Dead"},
        "CompletingRebalance": {"Stable", "PreparingRebalance", "Dead"},
        "Stable": {"PreparingRebalance", "Dead"},
        "Dead": set(),
    }


def test_answers_named_in_the_table_are_error_codes():
    for rules in RULES.values():
        for rule in (rules.sync, rules.commit):
            if rule.value.isupper():
                assert rule.value in ErrorCode.__members__


@pytest.mark.parametrize("source", list(GroupState))
@pytest.mark.parametrize("target", list(GroupState))
def test_no_other_transition_is_made(source: GroupState, target: GroupState):
    machine = GroupMachine("g", 0, GroupLimits())
    machine.state, machine.rules = source, RULES[source]
    if target in RULES[source].exits:
        machine._enter(target, 5)
        assert (machine.state, machine.rules, machine.state_timestamp_ms) == (target, RULES[target], 5)
    else:
        with pytest.raises(AssertionError, match=f"no way from {source.value} to {target.value}"):
            machine._enter(target, 5)
