"""Parts of pages about states and transitions, made from the tables that the state machines look their rules up in."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from ottla.wire.errors import ErrorCode

State = TypeVar("State", bound=Enum)

LABEL_WIDTH = 36
CHECKS_BEGIN = "Before the rules of a state"
CHECKS_END = "Source:"


def diagram(start: State, cause: str, exits: Mapping[State, Mapping[State, str]], end: State) -> Iterator[str]:
    """The state diagram in mermaid's language, one arrow for each exit; `cause` leads to the state `start`."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {start.value}: {cause}"
    for state, targets in exits.items():
        for target, reason in targets.items():
            # A semicolon would end the statement.
            label = "<br/>".join(textwrap.wrap(reason.replace(";", ","), LABEL_WIDTH))
            yield f"    {state.value} --> {target.value}: {label}"
    yield f"    {end.value} --> [*]"
    yield "```"


def rule_text(rule: Enum) -> str:
    """A rule as the table shows it."""
    if rule is ErrorCode.NONE:
        return "no error"
    text = rule.name if isinstance(rule, ErrorCode) else str(rule.value)
    return f"`{text}`" if text in ErrorCode.__members__ else text


def meanings(kind: type[Enum], source: Path) -> Iterator[str]:
    """The states with the words behind them."""
    texts = texts_of(kind, source)
    for state in kind:
        first, _, rest = texts[state.name].partition("\n\n")
        yield f"- **{state.value}**: {first}" + (f"\n  {rest}" if rest else "")


def texts_of(kind: type[Enum], source: Path) -> dict[str, str]:
    """The words behind each member of an enum in its source, every paragraph on one line."""
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


def checks(docstring: str | None) -> str:
    """What is checked in every state, from the docstring of the module with the table."""
    text = docstring or ""
    return text[text.index(CHECKS_BEGIN) : text.index(CHECKS_END)].strip()
