"""Avro's decimals: unscaled whole numbers in bytes or a fixed, as texts such as `12.30`."""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final, NamedTuple

from ottla.decoding.avro_schemas import AvroNode

#: Digits of a decimal; one of more digits is shown and written as its bytes.
MAX_PRECISION: Final = 1_000
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,9})?")


class AvroDecimal(NamedTuple):
    """The digits of a decimal type, and how many of them are behind the point. `size` is that of a fixed."""

    precision: int
    scale: int
    size: int | None

    def text(self, octets: bytes) -> str:
        """The number that bytes are. Raises ValueError."""
        if not octets:
            raise ValueError("a decimal without bytes")
        unscaled = int.from_bytes(octets, "big", signed=True)
        digits = str(abs(unscaled)).zfill(self.scale + 1)
        at = len(digits) - self.scale
        return f"{'-' * (unscaled < 0)}{digits[:at]}{'.' * bool(self.scale)}{digits[at:]}"

    def octets(self, value: Any) -> bytes | None:
        """The bytes of a number or its text; None where it is another value, or has more digits."""
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            return None
        text = value if isinstance(value, str) else repr(value)
        if len(text) > 2 * MAX_PRECISION or not _NUMBER.fullmatch(text):
            return None
        exact = Context(prec=self.precision, traps=[Inexact, InvalidOperation])
        try:
            scaled = Decimal(text).quantize(Decimal((0, (1,), -self.scale)), context=exact)
            unscaled = int(scaled.scaleb(self.scale, context=exact))
            return unscaled.to_bytes(self.size or unscaled.bit_length() // 8 + 1, "big", signed=True)
        except (Inexact, InvalidOperation, OverflowError):
            return None


def decimal_of(node: AvroNode) -> AvroDecimal | None:
    """The decimal that a type is; None for any other, and where precision and scale are not valid, as Avro has it."""
    logical = node.logical
    if node.type not in ("bytes", "fixed") or logical is None or logical.get("logicalType") != "decimal":
        return None
    precision, scale = logical.get("precision"), logical.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= MAX_PRECISION:
        return None
    if not precision or (node.type == "fixed" and not node.size):
        return None
    return AvroDecimal(precision, scale, node.size if node.type == "fixed" else None)
