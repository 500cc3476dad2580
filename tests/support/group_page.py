"""docs/groups.md: the states of a group, made from the table that the machine looks its answers up in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ottla.groups import coordinator
from ottla.groups.classic import states
from ottla.groups.classic.states import RULES, GroupState, StateRules
from ottla.groups.coordinator import CoordinatorState
from support.state_pages import checks, diagram, meanings, rule_text, texts_of


def groups_page(made_by: str) -> str:
    """The page: diagram, table, what each state means, what is checked in every state, the coordinator's states."""
    exits = {state: rules.exits for state, rules in RULES.items()}
    parts = [
        f"# Groups: states, requests, answers\n\n{made_by}",
        "A group of consumers (or of Connect workers, or of anybody who speaks the protocol) is in one of five states. "
        "Its coordinator looks every answer up in one table, [states.py](../src/ottla/groups/classic/states.py), and "
        "makes no transition that is not there; this page is drawn from the same table. That Apache Kafka 3.9 answers "
        "alike is tested by playing [transcripts](../tests/interop/groups) to both.\n",
        "- [The protocol's first draft](group-protocol-draft.md), beside what was shipped\n"
        "- [Where Apache Kafka's two coordinators differ](decisions/0034-which-coordinator.md), and whom we follow\n"
        "- [Why groups rebalance](rebalances.md): `ottla group why`\n",
        "## The diagram\n",
        "\n".join(diagram(GroupState.EMPTY, "a first join or commit", exits, GroupState.DEAD)) + "\n",
        "## The table\n",
        "\n".join(_table()) + "\n",
        "OffsetFetch is answered in every state with what is committed; DescribeGroups, ListGroups and FindCoordinator "
        "change nothing and are answered in all. Join: of a member that the group knows.\n",
        "## What each state means\n",
        "\n".join(meanings(GroupState, Path(states.__file__))) + "\n",
        "## What is refused in every state\n",
        checks(states.__doc__) + "\n",
        "## The coordinator of a group\n",
        "A group's coordinator is the leader of its partition of `__consumer_offsets`. Its state has a name and a "
        "number: `GroupCoordinatorService.coordinator_state` gives it for a group, `coordinator_states` counts by it, "
        "and the logger `ottla.groups` logs every change, of partitions at INFO, of groups at DEBUG (`kafka-configs "
        "--entity-type broker-loggers` turns that on while the broker runs).\n",
        "| state | value of the metric | meaning |\n|---|---|---|",
        *(f"| {state.label} | {state.value} | {meaning} |" for state, meaning in _coordinator_states()),
    ]
    return "\n".join(parts) + "\n"


def _table() -> Iterator[str]:
    yield "| request | " + " | ".join(state.value for state in RULES) + " |"
    yield "|---" * (len(RULES) + 1) + "|"
    names = {
        "join": "JoinGroup",
        "sync": "SyncGroup",
        "heartbeat": "Heartbeat",
        "commit": "OffsetCommit",
        "leave": "LeaveGroup, or session expired",
        "delete": "DeleteGroups",
        "delete_offsets": "OffsetDelete",
    }
    assert set(names) == set(StateRules._fields) - {"exits"}, "every rule has its row"
    for field, request in names.items():
        yield f"| {request} | " + " | ".join(rule_text(getattr(rules, field)) for rules in RULES.values()) + " |"


def _coordinator_states() -> Iterator[tuple[CoordinatorState, str]]:
    texts = texts_of(CoordinatorState, Path(coordinator.__file__))
    for state in CoordinatorState:
        yield state, texts[state.name]
