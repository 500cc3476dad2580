"""The table of served APIs and the handlers themselves say the same."""

from __future__ import annotations

from importlib import import_module

import pytest

from ottla.broker.served import SERVED
from ottla.wire.apis import API, ApiKey


@pytest.mark.parametrize("key", sorted(SERVED))
def test_table_and_handler_agree(key: int) -> None:
    served = SERVED[key]
    module = import_module(f"ottla.broker.handlers.{served.module}")
    assert (served.min_version, served.max_version) == (module.MIN_VERSION, module.MAX_VERSION)
    handler = served.load()
    assert handler.handle is module.handle
    assert handler.accesses is module.accesses
    assert served.module == ApiKey(key).name.lower()
    assert module.__doc__ is not None
    assert f"key {key}" in module.__doc__, "a handler's text opens with its key and the versions served"


@pytest.mark.parametrize("key", sorted(SERVED))
def test_only_versions_that_are_declared_are_served(key: int) -> None:
    assert SERVED[key].min_version >= API[key].min_version
    assert SERVED[key].max_version <= API[key].max_version
