"""docs/groups.md: the states of a group, made from the table that the machine looks its answers up in."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from ottla.groups import coordinator
from ottla.groups.classic import states
from ottla.groups.classic.states import RULES, GroupState, StateRules
from ottla.groups.coordinator import CoordinatorState
from ottla.wire.errors import ErrorCode

#: What is said of the page's origin, on its second line.
MADE_BY = "<!-- Made by `./run docs`; a test compares it with the code. -->\n"
LABEL_WIDTH = 36
CHECKS_BEGIN = "Before the rules of a state"
CHECKS_END = "Source:"


def groups_page() -> str:
    """The page: diagram, table, what each state means, what is checked in every state, the coordinator's states."""
    parts = [
        f"# Groups: states, requests, answers\n\n{MADE_BY}",
        "A group of consumers (or of Connect workers, or of anybody who speaks the protocol) is in one of five states. "
        "Its coordinator looks every answer up in one table, [states.py](../src/ottla/groups/classic/states.py), and "
        "makes no transition that is not there; this page is drawn from the same table. That Apache Kafka 3.9 answers "
        "alike is tested by playing [transcripts](../tests/interop/groups) to both.\n",
        "- [The protocol's first draft](group-protocol-draft.md), beside what was shipped\n"
        "- [Where Apache Kafka's two coordinators differ](decisions/0034-which-coordinator.md), and whom we follow\n"
        "- [Why groups rebalance](rebalances.md): `ottla group why`\n",
        "## The diagram\n",
        "\n".join(diagram()) + "\n",
        "## The table\n",
        "\n".join(_table()) + "\n",
        "OffsetFetch is answered in every state with what is committed; DescribeGroups, ListGroups and FindCoordinator "
        "change nothing and are answered in all. Join: of a member that the group knows.\n",
        "## What each state means\n",
        "\n".join(_meanings(GroupState, Path(states.__file__))) + "\n",
        "## What is refused in every state\n",
        _checks() + "\n",
        "## The coordinator of a group\n",
        "A group's coordinator is the leader of its partition of `__consumer_offsets`. Its state has a name and a "
        "number: `GroupCoordinatorService.coordinator_state` gives it for a group, `coordinator_states` counts by it, "
        "and the logger `ottla.groups` logs every change, of partitions at INFO, of groups at DEBUG (`kafka-configs "
        "--entity-type broker-loggers` turns that on while the broker runs).\n",
        "| state | value of the metric | meaning |\n|---|---|---|",
        *(f"| {state.label} | {state.value} | {meaning} |" for state, meaning in _coordinator_states()),
    ]
    return "\n".join(parts) + "\n"


def diagram() -> Iterator[str]:
    """The state diagram in mermaid's language, one arrow for each exit."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {GroupState.EMPTY.value}: a first join or commit"
    for state, rules in RULES.items():
        for target, cause in rules.exits.items():
            # A semicolon would end the statement.
            label = "<br/>".join(textwrap.wrap(cause.replace(";", ","), LABEL_WIDTH))
            yield f"    {state.value} --> {target.value}: {label}"
    yield f"    {GroupState.DEAD.value} --> [*]"
    yield "```"


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
        yield f"| {request} | " + " | ".join(_answer(getattr(rules, field)) for rules in RULES.values()) + " |"


def _answer(rule: Enum) -> str:
    if rule is ErrorCode.NONE:
        return "no error"
    text = rule.name if isinstance(rule, ErrorCode) else str(rule.value)
    return f"`{text}`" if text in ErrorCode.__members__ else text


def _meanings(kind: type[Enum], source: Path) -> Iterator[str]:
    texts = _texts_of(kind, source)
    for state in kind:
        first, _, rest = texts[state.name].partition("\n\n")
        yield f"- **{state.value}**: {first}" + (f"\n  {rest}" if rest else "")


def _coordinator_states() -> Iterator[tuple[CoordinatorState, str]]:
    texts = _texts_of(CoordinatorState, Path(coordinator.__file__))
    for state in CoordinatorState:
        yield state, texts[state.name]


def _texts_of(kind: type[Enum], source: Path) -> dict[str, str]:
    """What stands behind each member of an enum in its source, every paragraph on one line."""
    found: dict[str, str] = {}
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            for member, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(member, ast.Assign) and isinstance(text, ast.Expr):
                    target, value = member.targets[0], text.value
                    assert isinstance(target, ast.Name)
                    assert isinstance(value, ast.Constant)
                    paragraphs = str(value.value).split("\n\n")
                    found[target.id] = "\n\n".join(" ".join(part.split()) for part in paragraphs)
    return found


def _checks() -> str:
    text = states.__doc__ or ""
    return text[text.index(CHECKS_BEGIN) : text.index(CHECKS_END)].strip()
