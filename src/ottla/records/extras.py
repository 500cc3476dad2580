"""Packages that only an extra of ottla installs (`pip install 'ottla[arrow]'`), asked for where they are needed."""

from __future__ import annotations

import sys
from importlib import import_module


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the message names the extra."""


def require_extra(what: str, extra: str, *packages: str) -> None:
    """Import the packages that `what` needs. Raises MissingExtraError for the first that is not installed."""
    for package in packages:
        if sys.modules.get(package) is not None:
            continue
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            if error.name != package:  # it is there, and lacks something itself
                raise
            raise MissingExtraError(
                f"{what} needs {package}, which is not installed: pip install 'ottla[{extra}]'", name=package
            ) from None
