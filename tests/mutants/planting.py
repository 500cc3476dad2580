"""Small faults that can be planted in a module: an operator turned round, a number one too large, a call left out."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: What is said of a change that nobody is meant to notice: logs.
_LOGS = ("debug", "info", "warning", "error", "exception", "log")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the text from `start` to `end` (offsets in characters) of the module becomes `after`."""

    path: str
    line: int
    #: The line, without the spaces around it.
    text: str
    start: int
    end: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """What is shown, and how the list of harmless ones names it; without the line's number, since that moves."""
        change = f"{_one_line(self.before)} -> {_one_line(self.after)}"
        return f"{self.path}: {change}" if self.text.startswith(self.before) else f"{self.path}: {self.text}: {change}"

    def planted(self, source: str) -> str:
        """The module with the fault."""
        return source[: self.start] + self.after + source[self.end :]


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All faults that can be planted in the module, in the order of its text."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        # The columns of a syntax tree count bytes of UTF-8.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for node, after in _changes(ast.parse(source)):
        assert isinstance(node, ast.expr | ast.stmt)
        start = offset(node.lineno, node.col_offset)
        end = offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        found.append(Mutant(path, node.lineno, lines[node.lineno - 1].strip(), start, end, source[start:end], after))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.after))


def drawn(root: Path, folders: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """`count` mutants of the modules in these folders, as many of each folder; the same for the same seed and code."""
    chance = random.Random(seed)
    chosen: list[Mutant] = []
    for at, folder in enumerate(folders):
        files = sorted((root / folder).rglob("*.py"))
        everything = [one for file in files for one in mutants_of(file.relative_to(root).as_posix(), file.read_text())]
        wanted = count // len(folders) + (at < count % len(folders))
        chosen += chance.sample(everything, min(wanted, len(everything)))
    # A run that ends early has tried some of all.
    chance.shuffle(chosen)
    return chosen


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if _is_out_of_question(node):
            continue
        if isinstance(node, ast.expr):
            yield from ((node, after) for after in _of_expression(node))
        elif isinstance(node, ast.stmt):
            yield from ((node, after) for after in _of_statement(node))
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "type_params"):
                waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]


def _is_out_of_question(node: ast.AST) -> bool:
    """Text (with wrong places in the tree before Python 3.12), docstrings, logs, what is for the type checker only."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=called))) if called in _LOGS:
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in ("__all__", "__slots__")
        case ast.Call(func=ast.Name(id="TypeVar" | "NewType" | "cast")):
            return True
    return False


def _of_expression(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            yield _text(ast.Compare(left, [_COMPARED[type(op)]()], [right]))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _CALCULATED and not _is_type(node):
            yield _text(ast.BinOp(left, _CALCULATED[type(operator)](), right))
        case ast.BoolOp(op=ast.And(), values=values):
            yield _text(ast.BoolOp(ast.Or(), values))
        case ast.BoolOp(op=ast.Or(), values=values):
            yield _text(ast.BoolOp(ast.And(), values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _text(operand)
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(number)):
            yield str(number + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield _text(ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _FUNCTIONS:
            yield _text(ast.Call(ast.Name(_FUNCTIONS[name]), args, keywords))


def _of_statement(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            yield "pass"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return None"
        case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in _CALCULATED:
            yield ast.unparse(ast.AugAssign(target, _CALCULATED[type(operator)](), value))
        case ast.Break():
            yield "continue"
        case ast.Continue():
            yield "break"


def _is_type(node: ast.BinOp) -> bool:
    """Whether it is a union of types: `int | None`, with names in capitals."""
    sides = (node.left, node.right)
    return isinstance(node.op, ast.BitOr) and any(
        (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Name) and side.id[:1].isupper())
        for side in sides
    )


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _one_line(text: str) -> str:
    return " ".join(text.split())
