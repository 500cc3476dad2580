"""The table of APIs, and that messages are loaded only when used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.wire.apis import API, ApiKey
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def test_classes_of_an_api() -> None:
    api = API[ApiKey.JOIN_GROUP]
    assert api.request is JoinGroupRequest
    assert api.response is JoinGroupResponse
    assert (api.name, api.min_version, api.max_version, api.flexible_since) == ("JoinGroup", 0, 9, 6)
    assert repr(api) == "Api(JoinGroup, key 11, versions 0 to 9)"


def test_keys_count_from_zero() -> None:
    assert [key.value for key in ApiKey] == list(range(len(ApiKey)))


@pytest.mark.parametrize("api", API.values(), ids=lambda api: api.name)
def test_table_and_declarations_agree(api) -> None:
    for cls in (api.request, api.response):
        schema = cls.SCHEMA
        assert schema.api_key == api.key
        assert schema.versions == (api.min_version, api.max_version)
        assert schema.flexible_since == api.flexible_since
        assert schema.name == cls.__name__


def test_header_versions() -> None:
    fetch, versions = API[ApiKey.FETCH], API[ApiKey.API_VERSIONS]
    assert (fetch.request_header_version(11), fetch.response_header_version(11)) == (1, 0)
    assert (fetch.request_header_version(12), fetch.response_header_version(12)) == (2, 1)
    assert (versions.request_header_version(3), versions.response_header_version(3)) == (2, 0)
    assert versions.request_header_version(99) == 2
    assert [API[ApiKey.CONTROLLED_SHUTDOWN].request_header_version(version) for version in range(4)] == [0, 1, 1, 2]


def test_importing_the_table_loads_no_messages() -> None:
    code = (
        "import sys, ottla.wire.apis, ottla.wire.framing\n"
        "assert not [m for m in sys.modules if m.startswith('ottla.wire.messages.')]\n"
        "ottla.wire.apis.API[3].request\n"
        "print([m for m in sys.modules if m.startswith('ottla.wire.messages.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "['ottla.wire.messages.metadata']"


@pytest.mark.slow
def test_start_up_is_cheap(tmp_path: Path) -> None:
    """CPU time of everything that a starting broker imports from here, compiled once, the best of five processes."""
    code = (
        "import time, enum, typing, uuid\n"
        "begin = time.process_time()\n"
        "import ottla.wire.errors, ottla.wire.framing, ottla.wire.codec, ottla.wire.hot\n"
        "from ottla.wire.apis import API\n"
        "for key in (0, 1, 2, 3, 8, 9, 10, 11, 14, 18): API[key].request\n"
        "print((time.process_time() - begin) * 1000)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    command = [sys.executable, "-c", code]
    times = [
        float(subprocess.run(command, env=environment, capture_output=True, check=True, timeout=240).stdout)
        for _ in range(5)
    ]
    assert min(times) < 25
