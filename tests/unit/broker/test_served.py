"""The table of served APIs and the notes that open the handlers say the same."""

from __future__ import annotations

from importlib import import_module

import pytest

from ottla.broker.served import SERVED
from ottla.wire.apis import API, ApiKey


@pytest.mark.parametrize("key", sorted(SERVED))
def test_table_and_handler_agree(key: int) -> None:
    served = SERVED[key]
    module = import_module(f"ottla.broker.handlers.{served.module}")
    handler = served.load()
    assert handler.handle is module.handle
    assert handler.accesses is module.accesses
    assert served.module == ApiKey(key).name.lower()
    first, last = served.min_version, served.max_version
    opening = f"(key {key}), version{'' if first == last else 's'} {first}{'' if first == last else f'-{last}'}:"
    assert opening in (module.__doc__ or ""), "a handler's text opens with its key and the versions served"


@pytest.mark.parametrize("key", sorted(SERVED))
def test_only_versions_that_are_declared_are_served(key: int) -> None:
    assert SERVED[key].min_version >= API[key].min_version
    assert SERVED[key].max_version <= API[key].max_version
