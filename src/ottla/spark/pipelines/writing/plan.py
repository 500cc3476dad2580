"""SQL of only columns, casts and filters, as expressions that pyarrow computes.

Anything that is not known to give in pyarrow exactly what it gives in Spark makes the whole plan None: then rows go
through Spark. So this is strict rather than complete. Source: Spark SQL's reference on ANSI compliance, null semantics
and NaN semantics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.writing.expressions import ColumnReference, Expression, OneSelect
from ottla.spark.pipelines.writing.translation import NotTheSame, Scope, Translation

if TYPE_CHECKING:
    import pyarrow
    from sqlglot import exp

#: Parts of a SELECT that it may have.
_PARTS = frozenset({"expressions", "from_", "from", "where"})
#: What in the text of a query sqlglot and Spark may read in different ways: escapes, double quotes, variables.
_AMBIGUOUS = ("\\", '"', "''", "${")


@dataclass(frozen=True, slots=True)
class SqlRules:
    """The Spark settings that change the meaning of expressions."""

    ansi: bool
    utc: bool


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """A pipeline's SQL: one SELECT for all steps, and the columns of each view on the way."""

    conditions: OneSelect
    views: Mapping[str, Mapping[str, Expression]]


def plan_steps(
    source: str, schema: pyarrow.Schema, steps: Sequence[tuple[str, str]], rules: SqlRules
) -> SqlPlan | None:
    """One SELECT that does what all steps (name, SQL) do after each other, each on the view before it.

    `source` is the view that the first one may read, of `schema`. None where that is not possible. Raises
    MissingExtraError.
    """
    from ottla.records.extras import require_extra

    columns: dict[str, Expression] = {each.name: ColumnReference((each.name,), each.type) for each in schema}
    where: list[Expression] = []
    views = {source: columns}
    if steps:
        require_extra("a pipeline with SQL", "pipelines", "sqlglot")
    try:
        for name, text in steps:
            select = _parsed(text)
            scope = Scope(_view(select, source), columns)
            translation = Translation(scope, ansi=rules.ansi, utc=rules.utc)
            condition = select.args.get("where")
            if condition is not None:
                where += translation.conditions(condition.this)
            columns = _outputs(select, scope, translation)
            source = name
            views[name] = columns
    except NotTheSame:
        return None
    return SqlPlan(OneSelect(tuple(where), tuple(columns), tuple(columns.values())), views)


def _parsed(text: str) -> exp.Select:
    import sqlglot
    from sqlglot import exp

    if any(each in text for each in _AMBIGUOUS):
        raise NotTheSame
    try:
        found = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.SqlglotError:
        raise NotTheSame from None
    if type(found) is not exp.Select or _present(found) - _PARTS:
        raise NotTheSame
    return found


def _present(node: Any) -> set[str]:
    return {name for name, value in node.args.items() if value}


def _view(select: exp.Select, wanted: str) -> frozenset[str]:
    """The names by which columns may be qualified. Raises NotTheSame if it reads anything but the view `wanted`."""
    from sqlglot import exp

    clause = select.args.get("from_") or select.args.get("from")
    table = clause.this if clause is not None and _present(clause) == {"this"} else None
    if type(table) is not exp.Table or _present(table) - {"this", "alias"} or type(table.this) is not exp.Identifier:
        raise NotTheSame
    if table.name.lower() != wanted.lower():
        raise NotTheSame
    alias = table.args.get("alias")
    if alias is None:
        return frozenset({wanted.lower()})
    if _present(alias) != {"this"}:
        raise NotTheSame
    return frozenset({alias.name.lower()})


def _outputs(select: exp.Select, scope: Scope, translation: Translation) -> dict[str, Expression]:
    from sqlglot import exp

    found: dict[str, Expression] = {}

    def add(name: str, value: Expression) -> None:
        if name.lower() in {each.lower() for each in found}:
            raise NotTheSame
        found[name] = value

    for each in select.expressions:
        if type(each) is exp.Star and not _present(each):
            _add_all(scope.columns, add)
        elif type(each) is exp.Column and type(each.this) is exp.Star:
            if _present(each) != {"this", "table"} or each.table.lower() not in scope.names or _present(each.this):
                raise NotTheSame
            _add_all(scope.columns, add)
        elif type(each) is exp.Alias and _present(each) == {"this", "alias"}:
            add(each.alias, translation.of(each.this))
        elif type(each) in (exp.Column, exp.Dot):
            add(each.name, translation.of(each))
        else:
            raise NotTheSame  # Spark makes up a name.
    if not found:
        raise NotTheSame
    return found


def _add_all(columns: Mapping[str, Expression], add: Any) -> None:
    for name, value in columns.items():
        add(name, value)
