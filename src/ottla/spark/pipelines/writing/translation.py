"""One expression of sqlglot's syntax tree, as one that pyarrow computes; NotTheSame where the two may differ."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow

from ottla.spark.pipelines.writing.expressions import Call, Cast, ColumnReference, Expression, Literal

if TYPE_CHECKING:
    from sqlglot import exp

_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
#: Comparisons, and what they are with the operands exchanged.
_COMPARISONS = {"EQ": "equal", "NEQ": "not_equal", "LT": "less", "LTE": "less_equal", "GT": "greater"}
_COMPARISONS["GTE"] = "greater_equal"
_ARITHMETIC = {"Add": "add", "Sub": "subtract", "Mul": "multiply"}


class NotTheSame(Exception):
    """pyarrow may give something else than Spark for this."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that an expression may name, and the `names` (in lower case) that may qualify them."""

    names: frozenset[str]
    columns: Mapping[str, Expression]

    def column(self, path: list[str]) -> Expression:
        """A column, or a field of one, by its name in any case. Raises NotTheSame if there is not exactly one."""
        qualified = len(path) > 1 and path[0].lower() in self.names
        if qualified and any(name.lower() == path[0].lower() for name in self.columns):
            raise NotTheSame
        first, *fields = path[1:] if qualified else path
        found = [value for name, value in self.columns.items() if name.lower() == first.lower()]
        if len(found) != 1:
            raise NotTheSame
        return _field(found[0], fields)


def _field(value: Expression, fields: list[str]) -> Expression:
    for name in fields:
        if not isinstance(value, ColumnReference) or not pyarrow.types.is_struct(value.type):
            raise NotTheSame
        found = [each for each in value.type if each.name.lower() == name.lower()]
        if len(found) != 1:
            raise NotTheSame
        value = ColumnReference((*value.path, found[0].name), found[0].type)
    return value


class Translation:
    """Translates expressions over the columns of `scope`. `ansi` is Spark's mode; `utc`: its time zone is UTC."""

    def __init__(self, scope: Scope, *, ansi: bool, utc: bool) -> None:
        self._scope = scope
        self._ansi = ansi
        self._utc = utc

    def conditions(self, node: exp.Expression) -> list[Expression]:
        """A condition of WHERE. Raises NotTheSame.

        One that can fail is left to Spark: it may never compute it for a row that another condition drops.
        """
        found = self.of(node)
        if found.type != pyarrow.bool_() or found.can_fail:
            raise NotTheSame
        return [found]

    def of(self, node: exp.Expression) -> Expression:
        """The expression. Raises NotTheSame."""
        known = {
            "Paren": self._paren,
            "Column": self._column,
            "Dot": self._dot,
            "Literal": lambda each: _literal(each.this, is_string=each.is_string),
            "Neg": self._negative,
            "Boolean": self._boolean,
            "Not": self._not,
            "And": self._both,
            "Or": self._both,
            "Is": self._is_null,
            "In": self._in,
            "Between": self._between,
            "NullSafeEQ": self._null_safe,
            "Cast": self._cast,
            "TryCast": self._cast,
            "TsOrDsToDate": self._to_date,
        }
        kind = type(node).__name__
        if kind in known:
            return known[kind](node)
        if kind in _COMPARISONS:
            return self._compared(_COMPARISONS[kind], *self._operands(node))
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], *self._operands(node))
        raise NotTheSame

    def _operands(self, node: Any) -> tuple[Expression, Expression]:
        _only(node, "this", "expression")
        return self.of(node.this), self.of(node.expression)

    def _paren(self, node: Any) -> Expression:
        _only(node, "this")
        return self.of(node.this)

    def _column(self, node: Any) -> Expression:
        _only(node, "this", "table", "db", "catalog")
        return self._scope.column([each.name for each in node.parts])

    def _dot(self, node: Any) -> Expression:
        return self._scope.column([each.name for each in _dotted(node)])

    def _negative(self, node: Any) -> Expression:
        if type(node.this).__name__ != "Literal" or node.this.is_string:
            raise NotTheSame
        return _literal(f"-{node.this.this}", is_string=False)

    def _boolean(self, node: Any) -> Expression:
        return Literal(bool(node.this), pyarrow.bool_())

    def _not(self, node: Any) -> Expression:
        _only(node, "this")
        return _call("invert", self._truth(node.this))

    def _both(self, node: Any) -> Expression:
        _only(node, "this", "expression")
        name = "and_kleene" if type(node).__name__ == "And" else "or_kleene"
        return _call(name, self._truth(node.this), self._truth(node.expression))

    def _truth(self, node: Any) -> Expression:
        """A condition within another one; Spark may leave it out, so it must not fail."""
        return self.conditions(node)[0]

    def _is_null(self, node: Any) -> Expression:
        _only(node, "this", "expression")
        if type(node.expression).__name__ != "Null":
            raise NotTheSame
        value = self.of(node.this)
        return _call("is_null", value)

    def _in(self, node: Any) -> Expression:
        _only(node, "this", "expressions")
        value = self.of(node.this)
        found: Expression | None = None
        for each in node.expressions:
            candidate = self.of(each)
            if candidate.type != value.type and not isinstance(candidate, Literal):
                raise NotTheSame
            same = self._compared("equal", value, candidate)
            found = same if found is None else _call("or_kleene", found, same)
        if found is None:
            raise NotTheSame
        return found

    def _between(self, node: Any) -> Expression:
        _only(node, "this", "low", "high")
        value = self.of(node.this)
        low = self._compared("greater_equal", value, self.of(node.args["low"]))
        return _call("and_kleene", low, self._compared("less_equal", value, self.of(node.args["high"])))

    def _null_safe(self, node: Any) -> Expression:
        left, right = self._operands(node)
        neither = _call("and", _call("is_null", left), _call("is_null", right))
        return _call("coalesce", self._compared("equal", left, right), neither)

    def _compared(self, function: str, left: Expression, right: Expression) -> Expression:
        """A comparison of values of one kind; Spark's order of numbers puts NaN after all, and equal to itself."""
        left, right = _of_one_type(left, right)
        types = pyarrow.types
        kind = left.type
        if types.is_floating(kind):
            return _compared_doubles(function, left, right)
        plain = (types.is_integer, types.is_boolean, types.is_string, types.is_binary, types.is_date)
        if not any(test(kind) for test in plain) and not (types.is_timestamp(kind) and kind.tz is not None):
            raise NotTheSame
        return _call(function, left, right)

    def _arithmetic(self, function: str, left: Expression, right: Expression) -> Expression:
        left, right = _of_one_type(left, right)
        kind = left.type
        if kind == pyarrow.float64():
            return Call(function, (left, right), kind)
        if kind not in (pyarrow.int32(), pyarrow.int64()):
            raise NotTheSame
        if self._ansi:
            return Call(f"{function}_checked", (left, right), kind, checked=True)
        return Call(function, (left, right), kind)

    def _to_date(self, node: Any) -> Expression:
        if _present(node) - {"this", "safe"}:
            raise NotTheSame
        return self._cast_to(self.of(node.this), pyarrow.date32())

    def _cast(self, node: Any) -> Expression:
        if _present(node) - {"this", "to"}:
            raise NotTheSame
        value = self.of(node.this)
        wanted = _named_type(node.args["to"])
        if wanted == value.type and not isinstance(value, Literal):
            return value

        if isinstance(value, Literal) and pyarrow.types.is_string(value.type):
            return _typed_literal(value.value, wanted)
        return self._cast_to(value, wanted)

    def _cast_to(self, value: Expression, wanted: pyarrow.DataType) -> Expression:
        types = pyarrow.types
        kind = value.type
        if kind == wanted:
            return value
        if types.is_integer(kind) and types.is_integer(wanted):
            narrower = wanted.bit_width < kind.bit_width
            return Cast(value, wanted, checked=narrower and self._ansi)
        if types.is_integer(kind) and (wanted == pyarrow.float64() or types.is_string(wanted)):
            return Cast(value, wanted)
        if kind == pyarrow.float32() and wanted == pyarrow.float64():
            return Cast(value, wanted)
        if types.is_boolean(kind) and types.is_string(wanted):
            return Cast(value, wanted)
        if types.is_binary(kind) and types.is_string(wanted):  # Bytes as they are, in both.
            return Cast(value, wanted)
        if types.is_string(kind) and types.is_binary(wanted):
            return Cast(value, wanted)
        if types.is_timestamp(kind) and kind.tz == "UTC" and types.is_date(wanted) and self._utc:
            return Cast(value, wanted)
        raise NotTheSame


def _call(function: str, *operands: Expression) -> Expression:
    return Call(function, operands, pyarrow.bool_())


def _compared_doubles(function: str, left: Expression, right: Expression) -> Expression:
    """NaN is equal to NaN and greater than all else; null where a side is null."""
    left_nan, right_nan = _call("is_nan", left), _call("is_nan", right)
    if function in ("equal", "not_equal"):
        same = _call("or", _call("equal", left, right), _call("and", left_nan, right_nan))
        return same if function == "equal" else _call("invert", same)
    if function in ("less", "less_equal"):
        return _compared_doubles({"less": "greater", "less_equal": "greater_equal"}[function], right, left)
    if function == "greater":
        return _call("or", _call("greater", left, right), _call("and", left_nan, _call("invert", right_nan)))
    return _call("or", _call("greater_equal", left, right), left_nan)


def _of_one_type(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Both in the type in which Spark compares them. Raises NotTheSame."""
    types = pyarrow.types
    if left.type == right.type:
        return left, right
    if types.is_integer(left.type) and types.is_integer(right.type):
        wide = left.type if left.type.bit_width > right.type.bit_width else right.type
        return _widened(left, wide), _widened(right, wide)
    for one, other in ((left, right), (right, left)):
        if one.type != pyarrow.float64():
            continue
        if types.is_integer(other.type) or (types.is_decimal(other.type) and isinstance(other, Literal)):
            wide = pyarrow.float64()
            return _widened(left, wide), _widened(right, wide)
    raise NotTheSame


def _widened(value: Expression, kind: pyarrow.DataType) -> Expression:
    if value.type == kind:
        return value
    if isinstance(value, Literal):
        return Literal(float(value.value) if pyarrow.types.is_floating(kind) else value.value, kind)
    return Cast(value, kind)


def _literal(text: str, *, is_string: bool) -> Expression:
    """A literal in the type that Spark gives it."""
    if is_string:
        return Literal(text, pyarrow.string())
    if text.lstrip("-").isdigit():
        number = int(text)
        if number in _INT32:
            return Literal(number, pyarrow.int32())
        if number in _INT64:
            return Literal(number, pyarrow.int64())
        raise NotTheSame
    return _fraction(text)


def _fraction(text: str) -> Expression:
    from decimal import Decimal

    if "e" in text.lower():
        return Literal(float(text), pyarrow.float64())
    whole, _, part = text.lstrip("-").partition(".")
    if not (whole + part).isdigit() or len(whole + part) > 15:  # Exact as a double's digits.
        raise NotTheSame
    digits = max(len(part), len(whole.lstrip("0") + part), 1)
    return Literal(Decimal(text), pyarrow.decimal128(digits, len(part)))


def _typed_literal(text: str, kind: pyarrow.DataType) -> Expression:
    """DATE '…': only in the form that means one thing."""
    if kind == pyarrow.string():
        return Literal(text, kind)
    if kind != pyarrow.date32() or len(text) != len("2013-01-01"):
        raise NotTheSame
    try:
        return Literal(datetime.date.fromisoformat(text), kind)
    except ValueError:
        raise NotTheSame from None


def _named_type(node: Any) -> pyarrow.DataType:
    named = {
        "TINYINT": pyarrow.int8(),
        "SMALLINT": pyarrow.int16(),
        "INT": pyarrow.int32(),
        "BIGINT": pyarrow.int64(),
        "DOUBLE": pyarrow.float64(),
        "TEXT": pyarrow.string(),
        "BINARY": pyarrow.binary(),
        "BOOLEAN": pyarrow.bool_(),
        "DATE": pyarrow.date32(),
    }
    kind = getattr(node.this, "name", None)
    if _present(node) != {"this"} or kind not in named:
        raise NotTheSame
    return named[kind]


def _dotted(node: Any) -> list[Any]:
    """The names of a.b.c.d.e, of which sqlglot makes a column and dots."""
    kind = type(node).__name__
    if kind == "Dot":
        _only(node, "this", "expression")
        return [*_dotted(node.this), *_dotted(node.expression)]
    if kind == "Column":
        return list(node.parts)
    if kind == "Identifier":
        return [node]
    raise NotTheSame


def _present(node: Any) -> set[str]:
    return {name for name, value in node.args.items() if value}


def _only(node: Any, *names: str) -> None:
    if _present(node) - set(names):
        raise NotTheSame
