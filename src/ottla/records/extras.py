"""Packages that only an extra of ottla installs (`pip install 'ottla[arrow]'`), asked for where they are needed."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the message names the extra."""


def missing_extra(what: str, extra: str, *modules: str) -> str:
    """The message that `what` needs these modules of an extra; packages are named as pip knows them."""
    packages = ", ".join(module.replace("_", "-") for module in modules)
    return f"{what} needs {packages}: pip install 'ottla[{extra}]'"


def require_extra(what: str, extra: str, *modules: str) -> None:
    """Import the modules that `what` needs. Raises MissingExtraError for the first that is not installed."""
    for module in modules:
        if sys.modules.get(module) is not None:
            continue
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:  # it is there, and lacks something itself
                raise
            raise MissingExtraError(missing_extra(what, extra, module), name=module) from None


def require_installed(what: str, extra: str, *modules: str) -> None:
    """Look for the modules that `what` needs, and import none, since the process may never use them.

    Raises MissingExtraError for the first that is not installed.
    """
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(missing_extra(what, extra, module), name=module)
