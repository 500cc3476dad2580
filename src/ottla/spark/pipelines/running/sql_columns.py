"""Checks of a pipeline's SQL without Spark: which columns there are, and what Spark refuses of a stream.

They are careful: a column counts as unknown only where all that its SELECT reads is known, and where Spark has no other
meaning for the name. What cannot be known without Spark is left to the start.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.errors import SparkRefusal
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.queries.schemas import schema_in_use
from ottla.spark.pipelines.queries.sources import read_options
from ottla.spark.pipelines.queries.static_tables import DELTA, PARQUET, dataset
from ottla.spark.pipelines.settings.model import PipelineSettings, SourceSettings, StaticTableSettings
from ottla.spark.source.options import parse_read_options

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

APPEND, COMPLETE = "append", "complete"
#: Words that Spark takes for functions where no column has that name.
_FUNCTIONS: Final = frozenset(
    {"all", "current_date", "current_time", "current_timestamp", "current_user", "grouping__id", "session_user", "user"}
)
#: Columns that Spark makes of the functions by which rows are grouped.
_OF_WINDOWS: Final = frozenset({"window", "session_window", "event_window"})

#: The columns of something, in order; None where they are not known.
Columns = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class View:
    """An input of a step. `aggregates`: its rows are those of an aggregate over a stream."""

    name: str
    columns: Columns = None
    is_stream: bool = False
    has_watermark: bool = False
    aggregates: bool = False


@dataclass(frozen=True, slots=True)
class StepColumns:
    """The output of a step, and its mistake where it has one."""

    view: View
    problem: str | None = None


def look_at(name: str, tree: exp.Query, views: Mapping[str, View], output_mode: str) -> StepColumns:
    """A step's SQL over `views`, by their names in lower case."""
    from sqlglot import exp

    read = [views[each.name.lower()] for each in tree.find_all(exp.Table) if each.name.lower() in views]
    view = View(
        name,
        is_stream=any(each.is_stream for each in read),
        has_watermark=any(each.has_watermark for each in read),
        aggregates=any(each.aggregates for each in read) or (_reads_stream(tree, views) and _aggregates(tree)),
    )
    problem = _refused_of_streams(tree, view, views, output_mode)
    if tree.find(exp.Pivot, exp.Lateral, exp.UDTF) is not None:  # Columns of other kinds.
        return StepColumns(view, problem)
    columns, unknown = _Resolution(views).of(tree)
    return StepColumns(replace(view, columns=columns), unknown or problem)


def lacking(setting: str, names: Iterable[str], columns: Columns, *, as_spark: bool = False) -> str | None:
    """Describe the columns that a setting names and the rows lack.

    Upper and lower case count, except with `as_spark`: for settings that Spark itself looks up.
    """
    if columns is None:
        return None
    there = {each.lower() for each in columns} if as_spark else {*columns}
    missing = [each for each in names if (each.lower() if as_spark else each) not in there]
    if not missing:
        return None
    return f"{setting} names {', '.join(missing)}, which the rows lack; they have {', '.join(columns)}"


def _own(tree: exp.Query, *types: type[Any]) -> list[Any]:
    """Find the nodes of these types in the statement, but not in one within it."""
    from sqlglot import exp

    def is_inner(node: Any) -> bool:
        return node is not tree and isinstance(node, exp.Query)

    return [each for each in tree.walk(prune=is_inner) if isinstance(each, types) and not is_inner(each)]


def _reads_stream(tree: exp.Query, views: Mapping[str, View]) -> bool:
    from sqlglot import exp

    read = (views.get(each.name.lower()) for each in _own(tree, exp.Table))
    return any(each is not None and each.is_stream for each in read)


def _aggregates(tree: exp.Query) -> bool:
    from sqlglot import exp

    plain = [each for each in _own(tree, exp.AggFunc) if each.find_ancestor(exp.Window) is None]
    return bool(plain or _own(tree, exp.Group))


def _refused_of_streams(tree: exp.Query, view: View, views: Mapping[str, View], output_mode: str) -> str | None:
    """Why Spark refuses the step over a stream, None where nothing is seen that it refuses."""
    from sqlglot import exp

    if not isinstance(tree, exp.Select) or not _reads_stream(tree, views):
        return None
    if _own(tree, exp.Window):
        return "functions OVER rows are not for streams; group by window(…) of the event time"
    if any(isinstance(each.parent, exp.AggFunc) for each in _own(tree, exp.Distinct)):
        return "DISTINCT in an aggregate is not for streams; use approx_count_distinct, or deduplicate_by of a step"
    if _aggregates(tree):
        if output_mode == APPEND and not (view.has_watermark and _own(tree, exp.Group)):
            return (
                "an aggregate with output_mode = append is never final without event time: give watermark_column and "
                "watermark_delay, and group by window(…) of that column; or set output_mode = update"
            )
        read = (views.get(each.name.lower()) for each in _own(tree, exp.Table))
        if output_mode != APPEND and any(each is not None and each.aggregates for each in read):
            return f"an aggregate of an aggregate needs output_mode = append, and it is {output_mode}"
    if tree.args.get("order") is not None and not (output_mode == COMPLETE and view.aggregates):
        return "ORDER BY is for streams only behind an aggregate with output_mode = complete; sort what is read later"
    return None


class _Resolution:
    """The columns of one statement, its inner ones first."""

    def __init__(self, views: Mapping[str, View]) -> None:
        self._views = views
        self._outputs: dict[int, Columns] = {}
        self._of_statements: dict[int, Columns] = {}

    def of(self, tree: exp.Query) -> tuple[Columns, str | None]:
        """Return the statement's columns, or the first column that is not there, in a sentence."""
        from sqlglot import exp
        from sqlglot.optimizer.scope import traverse_scope

        outputs: Columns = None
        for scope in traverse_scope(tree):
            if isinstance(scope.expression, exp.Select):
                problem = self._unknown(scope)
                if problem is not None:
                    return None, problem
            outputs = self._outputs[id(scope)] = self._of_statements[id(scope.expression)] = self._selected(scope)
        return outputs, None

    def _read(self, scope: Scope) -> dict[str, Columns]:
        """The columns of what a SELECT reads, by the names that it has for it."""
        from sqlglot import exp

        found: dict[str, Columns] = {}
        named: Any
        for name, _ in scope.references:  # `selected_sources` lacks the right sides of LEFT SEMI and LEFT ANTI.
            source = scope.sources.get(name)
            if source is None:
                found[name.lower()] = None
                continue
            if isinstance(source, exp.Table):
                view, named = self._views.get(source.name.lower()), source
                columns = None if view is None else view.columns
            else:
                columns, named = self._outputs.get(id(source)), source.expression.parent
            alias = None if named is None else named.args.get("alias")
            renames = isinstance(alias, exp.TableAlias) and alias.args.get("columns")
            found[name.lower()] = None if renames else columns
        return found

    def _unknown(self, scope: Scope) -> str | None:
        from sqlglot import exp

        scopes = _seen_from(scope)
        sources: dict[str, Columns] = {}
        for each in reversed(scopes):
            sources |= self._read(each)
        aliases = {selected.alias.lower() for each in scopes for selected in _selects(each) if selected.alias}
        everything = [name for columns in sources.values() for name in columns or ()]
        known = {each.lower() for each in everything} | aliases | _OF_WINDOWS | _FUNCTIONS
        is_whole = all(columns is not None for columns in sources.values())
        for column in scope.columns:
            if isinstance(column.this, exp.Star) or column.find_ancestor(exp.Lambda) is not None:
                continue
            if column.find_ancestor(exp.Query) is not scope.expression:
                continue  # One of a SELECT within this one, which sees more than this one does.
            first, *rest = (each.name for each in column.parts)
            if rest and first.lower() in sources:
                owned = sources[first.lower()]
                if owned is not None and rest[0].lower() not in {each.lower() for each in owned}:
                    return _no_column(f"{first}.{rest[0]}", rest[0], owned)
            elif is_whole and first.lower() not in known:
                return _no_column(first, first, everything)
        return None

    def _selected(self, scope: Scope) -> Columns:
        """Return its columns; None where Spark makes one of the names."""
        from sqlglot import exp

        if not isinstance(scope.expression, exp.Select):
            left = scope.expression.args.get("this")  # Of a UNION and the like, the first one names the columns.
            return None if left is None else self._of_statements.get(id(left.unnest()))
        found: list[str] = []
        for each in _selects(scope):
            if each.find(exp.Explode, exp.Inline) is not None:
                return None
            named = each.this if isinstance(each, exp.Cast) else each
            is_named = isinstance(named, exp.Column) or isinstance(each, exp.Alias)
            names = self._of_star(scope, each) if each.is_star else (each.output_name,) if is_named else None
            if names is None or not all(names):
                return None
            found += names
        return tuple(found)

    def _of_star(self, scope: Scope, star: Any) -> Columns:
        """The columns of `*` or `name.*`."""
        from sqlglot import exp

        if any((star if isinstance(star, exp.Star) else star.this).args.values()) or scope.expression.args.get("joins"):
            return None  # EXCEPT and the like; USING and NATURAL leave columns out.
        sources = self._read(scope)
        return sources.get(star.text("table").lower()) if star.text("table") else next(iter(sources.values()), None)


def _selects(scope: Scope) -> list[Any]:
    """Return the SELECT's expressions."""
    return scope.expression.args.get("expressions") or []


def _seen_from(scope: Scope) -> list[Scope]:
    """The SELECT, and those that have it in a condition or a value, at any depth: it sees what they read."""
    found, inner = [scope], scope
    while inner.parent is not None:
        if inner.is_subquery:
            found.append(inner.parent)
        inner = inner.parent
    return found


def _no_column(shown: str, name: str, there: Iterable[str]) -> str:
    known = {each.lower(): each for each in there}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    cure = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(known.values()) or 'none'}"
    return f"there is no column {shown}; {cure}"


def read_views(settings: PipelineSettings) -> list[View]:
    """List the views of the first step: sources and static tables, with their columns as far as they can be had."""
    sources = [
        View(each.name, _of_source(settings, each), is_stream=True, has_watermark=each.watermark_column is not None)
        for each in settings.sources
    ]
    return [*sources, *(View(each.name, _of_table(each)) for each in settings.tables)]


def _of_source(settings: PipelineSettings, source: SourceSettings) -> Columns:
    from ottla.client.errors import ClientError
    from ottla.spark.source.schema import read_schema

    try:
        schema = schema_in_use(QueryCheckpoint(settings.checkpoint), settings, source)
        options = read_options(source, schema=schema, starting=source.starting_offsets)
        parsed = parse_read_options(options, streaming=True)
        names = read_schema(parsed).names
    except (SparkRefusal, ClientError, ImportError, OSError):  # The look at the source says it.
        return None
    reason = None if parsed.decoding is None else parsed.decoding.bad_reason_column
    return tuple(each for each in names if each != reason)


def _of_table(table: StaticTableSettings) -> Columns:
    if table.format not in (PARQUET, DELTA):
        return None
    try:
        return tuple(dataset(table.format, table.path, table.options).schema.names)
    except (SparkRefusal, ImportError):  # The look at the table says it.
        return None
