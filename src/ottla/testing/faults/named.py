"""Names of APIs and errors as tests write them, and what is said of wrong ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from ottla.broker.served import SERVED
from ottla.testing.errors import TestBrokerError
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _api_name(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))


#: The names of all of Kafka's APIs, as Kafka writes them.
NAMES: Final[Mapping[ApiKey, str]] = {key: _api_name(key) for key in ApiKey}
_KEYS: Final = {_plain(name): key for key, name in NAMES.items()}


def api_named(name: str | ApiKey) -> ApiKey:
    """The API of this name, in any case: `Produce`, `offset_commit`. Raises `TestBrokerError`."""
    key: ApiKey | None = None
    if isinstance(name, str):
        key = _KEYS.get(_plain(name))
    elif isinstance(name, ApiKey):
        key = name
    else:
        raise TestBrokerError(f'an API is named by text, as in "Produce", not by {name!r}')
    if key is None:
        served = {_plain(NAMES[ApiKey(each)]): NAMES[ApiKey(each)] for each in SERVED}
        raise TestBrokerError(f"there is no API {name}; {nearest(_plain(str(name)), served)}")
    if key not in SERVED or key not in API:
        raise TestBrokerError(f"the broker does not serve {NAMES[key]}, so that no request for it can fail")
    return key


@cache
def _errors() -> dict[str, ErrorCode]:
    """By their plain names; made when a rule first names an error, not for each broker that starts."""
    return {_plain(error.name): error for error in ErrorCode}


def error_named(error: str | ErrorCode) -> ErrorCode:
    """The error of this name, in any case: `NOT_LEADER_OR_FOLLOWER`. Raises `TestBrokerError`."""
    found: ErrorCode | None = None
    if isinstance(error, str):
        found = _errors().get(_plain(error))
    elif isinstance(error, ErrorCode):
        found = error
    else:
        raise TestBrokerError(f'an error is named by text, as in "NOT_LEADER_OR_FOLLOWER", not by {error!r}')
    if found is None:
        raise TestBrokerError(f"there is no error {error}; {nearest(_plain(str(error)), _names_of_errors())}")
    if found is ErrorCode.NONE:
        raise TestBrokerError("NONE is the code of success: a rule needs an error")
    return found


def _names_of_errors() -> dict[str, str]:
    return {plain: error.name for plain, error in _errors().items()}


def nearest(name: str, known: Mapping[str, str]) -> str:
    """The nearest name as a question, or all names where none is near."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {known[close[0]]}?" if close else f"there are: {listed(known.values())}"


def listed(names: Iterable[str], limit: int = 40) -> str:
    """Names in order, the first `limit` of them; "none" where there are none."""
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return (", ".join(ordered[:limit]) or "none") + more
