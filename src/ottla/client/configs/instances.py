"""Objects for class settings: given as instances, classes, dotted names, or names of Java classes."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from ottla.client.errors import ClientError, InvalidConfigError

JAVA_PACKAGES = ("org.apache.kafka.", "io.confluent.")


def make_instance(
    kind: str, setting: str, original: object, built_in: Mapping[str, type], method: str | None = None
) -> tuple[Any, bool]:
    """Resolve the setting; returns the object, and whether it was created here (and has to be configured).

    A str names a class of `built_in` (by its own name or that of Java's class), or a class, function or object by its
    dotted path. A class is instantiated without arguments, unless it lacks `method`. Raises InvalidConfigError with the
    name and the reason; `kind` is the kind of client, `setting` the setting's name.
    """
    found = _named(kind, setting, original.strip(), built_in) if isinstance(original, str) else original
    if not isinstance(found, type) or (method is not None and not hasattr(found, method)):
        return found, False
    try:
        return found(), True
    except ClientError:
        raise
    except Exception as error:  # a user's class may raise anything
        raise InvalidConfigError(
            kind,
            [
                f"{setting}: {found.__module__}.{found.__qualname__} cannot be made without arguments "
                f"({type(error).__name__}: {error}). Give an object of it instead."
            ],
        ) from error


def configure(kind: str, setting: str, made: object, *arguments: object) -> None:
    """Call the object's `configure`, if it has one. Its errors are raised as InvalidConfigError."""
    method = getattr(made, "configure", None)
    if not callable(method):
        return
    try:
        method(*arguments)
    except ClientError:
        raise
    except Exception as error:  # user code
        name = type(made).__qualname__
        raise InvalidConfigError(
            kind, [f"{setting}: configure of {name} failed ({type(error).__name__}: {error})."]
        ) from error


def _named(kind: str, setting: str, path: str, built_in: Mapping[str, type]) -> object:
    simple = path.rpartition(".")[2]
    if simple in built_in and (path == simple or path.startswith(JAVA_PACKAGES)):
        return built_in[simple]
    if "." not in path or path.startswith(JAVA_PACKAGES):
        close = get_close_matches(simple, built_in, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(built_in)}." if built_in else "."
        why = "is a Java class without a counterpart here" if path.startswith(JAVA_PACKAGES) else "is not known"
        raise InvalidConfigError(kind, [f"{setting}={path}: {path} {why}{hint} Your own go by their dotted path."])
    try:
        return imported(path)
    except Exception as error:  # a user's module may raise anything
        reason = str(error) if isinstance(error, LookupError | ImportError) else f"{type(error).__name__}: {error}"
        raise InvalidConfigError(
            kind, [f"{setting}={path}: {path} cannot be imported ({reason}). Check the name and Python's search path."]
        ) from error


def imported(path: str) -> object:
    """Import the object at a dotted path, `package.module.Class` or `package.module.Class.method`, or raise."""
    names = path.split(".")
    for cut in range(len(names) - 1, 0, -1):
        module_name = ".".join(names[:cut])
        try:
            found: object = import_module(module_name)
        except ModuleNotFoundError as error:
            if cut > 1 and error.name is not None and (module_name == error.name or module_name.startswith(error.name)):
                continue  # the last part may be a class
            raise
        for at, attribute in enumerate(names[cut:], cut):
            if not hasattr(found, attribute):
                raise ImportError(f"{'.'.join(names[:at])} has no {attribute}")
            found = getattr(found, attribute)
        return found
    raise ImportError(f"{path} is not a dotted path")
