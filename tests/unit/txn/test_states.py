"""The table of states: complete, Apache Kafka's transitions, and no other is made."""

from __future__ import annotations

import pytest

from ottla.txn.states import RULES, STATE_IDS, AddRule, EndRule, InitRule, TransactionState, VerifyRule
from ottla.wire.errors import ErrorCode
from support.transaction_world import World

pytestmark = pytest.mark.spec("X1")


def test_every_state_has_its_row_and_the_number_of_the_log():
    assert set(RULES) == set(TransactionState)
    assert [state.value for state in STATE_IDS] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_the_exits_are_apache_kafkas():
    before: dict[str, set[str]] = {state.value: set() for state in TransactionState}
    for state, rules in RULES.items():
        for target in rules.exits:
            before[target.value].add(state.value)
    assert before == {
        "Empty": {"Empty", "CompleteCommit", "CompleteAbort"},
        "Ongoing": {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"},
        "PrepareCommit": {"Ongoing"},
        # All but Ongoing and PrepareEpochFence for the newer protocol only.
        "PrepareAbort": {"Ongoing", "PrepareEpochFence", "Empty", "CompleteCommit", "CompleteAbort"},
        "CompleteCommit": {"PrepareCommit"},
        "CompleteAbort": {"PrepareAbort"},
        "Dead": {"Empty", "CompleteCommit", "CompleteAbort"},
        "PrepareEpochFence": {"Ongoing"},
    }


@pytest.mark.parametrize("kind", [InitRule, AddRule, VerifyRule, EndRule])
def test_answers_named_in_the_table_are_error_codes(kind: type[InitRule | AddRule | VerifyRule | EndRule]):
    assert {rule.value for rule in kind if rule.value.isupper()} <= set(ErrorCode.__members__)


@pytest.mark.parametrize("source", list(TransactionState))
@pytest.mark.parametrize("target", list(TransactionState))
def test_no_other_transition_is_made(source: TransactionState, target: TransactionState):
    world = World()
    world.init()
    if target in RULES[source].exits:
        world.machine._check_transition(source, target)
    else:
        with pytest.raises(AssertionError, match=f"no way from {source.value} to {target.value}"):
            world.machine._check_transition(source, target)
