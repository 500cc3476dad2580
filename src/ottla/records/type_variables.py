"""Types of keys and values, for records and the clients that send and read them.

Where a program names none, they are Any (PEP 696). Type checkers know `typing_extensions` without its being installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
