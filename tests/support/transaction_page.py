"""docs/transaction-states.md: the states of a transactional id, made from the table of their state machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ottla.txn import states
from ottla.txn.states import RULES, EndRules, TransactionRules, TransactionState
from support.state_pages import checks, diagram, meanings, rule_text

#: The rows of the table by the field of the rules; those of EndTxn have one for a commit and one for an abort.
REQUESTS = {
    "init": "InitProducerId",
    "add": "AddPartitionsToTxn, AddOffsetsToTxn",
    "verify": "AddPartitionsToTxn, to verify",
    "end": "older protocol",
    "bumping_end": "newer protocol",
    "repeated_end": "newer protocol, epoch before the bump",
}
#: States in which no request is answered: the transition out of them is in the same step.
PASSED_THROUGH = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


def transaction_states_page(made_by: str) -> str:
    """The page: diagram, table, what each state means, what is checked in every state."""
    exits = {state: rules.exits for state, rules in RULES.items()}
    parts = [
        f"# Transactions: states, requests, answers\n\n{made_by}",
        "A transactional id is in one of these states. Its coordinator looks every answer up in one table, "
        "[states.py](../src/ottla/txn/states.py), and makes no transition that is not there; this page is drawn from "
        "the same table. `ottla transaction` shows them, and ends one that hangs "
        "([operations](operations.md)).\n",
        "## The diagram\n",
        "\n".join(diagram(TransactionState.EMPTY, "a first InitProducerId", exits, TransactionState.DEAD)) + "\n",
        "## The table\n",
        "\n".join(_table()) + "\n",
        "DescribeTransactions and ListTransactions change nothing and are answered in every state. A request of a "
        "producer in the states Dead and PrepareEpochFence is never seen: they last for one step only.\n",
        "## What each state means\n",
        "\n".join(meanings(TransactionState, Path(states.__file__))) + "\n",
        "## What is refused in every state\n",
        checks(states.__doc__),
    ]
    return "\n".join(parts) + "\n"


def _table() -> Iterator[str]:
    assert set(REQUESTS) == set(TransactionRules._fields) - {"expires", "exits"}, "every rule has its row"
    shown = [state for state in RULES if state not in PASSED_THROUGH]
    yield "| request | " + " | ".join(state.value for state in shown) + " |"
    yield "|---" * (len(shown) + 1) + "|"
    for field, request in REQUESTS.items():
        rules = [getattr(RULES[state], field) for state in shown]
        if isinstance(rules[0], EndRules):
            for verb in EndRules._fields:
                row = " | ".join(rule_text(getattr(each, verb)) for each in rules)
                yield f"| EndTxn, {verb}: {request} | {row} |"
        else:
            yield f"| {request} | " + " | ".join(map(rule_text, rules)) + " |"
    yield "| expires | " + " | ".join("yes" if RULES[state].expires else "no" for state in shown) + " |"
