"""The pytest plugin: fixtures for brokers and topics (entry point `pytest11`).

- `ottla_broker`: one broker for the whole run (per process with pytest-xdist), in memory.
- `ottla_topic`: the name of a topic of its own for the test, on that broker.
- `ottla_fresh_broker`: a broker for this test alone.

`@pytest.mark.ottla(topics={"orders": 3}, settings={...}, on_disk=True)` declares topics, and for a fresh broker its
settings, whether it keeps its data in a directory, and its security (`tls=True`, `sasl={"alice": "secret"}`).
While one of these brokers runs, `OTTLA_BOOTSTRAP_SERVER` in the environment names it for the code under test.

Importing this module must stay cheap: every pytest run of an environment with ottla in it does so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker

BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP_SERVER"
CLUSTER_VARIABLE = "OTTLA_CLUSTER"
"""A named cluster, which commands refuse beside an address."""
SETTINGS_OPTION = "ottla_settings"
MARKER = "ottla"
MARKER_ARGUMENTS = ("topics", "settings", "on_disk", "tls", "sasl")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of the configuration file."""
    parser.addini(SETTINGS_OPTION, "broker settings of ottla_broker, one key=value a line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "ottla(topics={name: partitions}, settings={...}, on_disk=False, tls=False, sasl={user: password}): topics of "
        "the test's broker; for ottla_fresh_broker also its settings, whether it keeps its data in a directory, and "
        "its security",
    )


@pytest.fixture(scope="session")
def _ottla_session_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    from ottla.testing.embedded import EmbeddedBroker

    settings = {}
    for line in request.config.getini(SETTINGS_OPTION):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{SETTINGS_OPTION}: {line!r} is not key=value, as in message.max.bytes=1000000")
        settings[name.strip()] = value.strip()
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


@pytest.fixture
def ottla_broker(
    _ottla_session_broker: EmbeddedBroker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmbeddedBroker]:
    """The broker of this pytest process; topics of the test's marker are created where they are missing.

    Fault rules of the test end with it.
    """
    broker = _ottla_session_broker
    declared = _declared(request)
    if any(declared.get(name) for name in MARKER_ARGUMENTS[1:]):
        raise pytest.UsageError(
            "the marker's settings, on_disk, tls and sasl belong to a broker of the test's own: use the fixture "
            "ottla_fresh_broker"
        )
    existing = broker.topics()
    broker.create_topics({name: each for name, each in declared.get("topics", {}).items() if name not in existing})
    _name_in_environment(broker, monkeypatch)
    yield broker
    broker.faults.clear()


@pytest.fixture
def ottla_topic(ottla_broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, for this test alone."""
    kept = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in request.node.name)
    name = f"{kept[:80]}-{os.urandom(4).hex()}"
    ottla_broker.create_topic(name)
    return name


@pytest.fixture
def ottla_fresh_broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    """A broker for this test alone, with the topics and settings of the marker."""
    from ottla.testing.embedded import EmbeddedBroker

    declared = _declared(request)
    data: Path | None = request.getfixturevalue("tmp_path") / "ottla" if declared.get("on_disk") else None
    made_with: dict[str, Any] = {name: declared.get(name) for name in ("topics", "settings", "tls", "sasl")}
    with EmbeddedBroker(**made_with, data=data) as broker:
        _name_in_environment(broker, monkeypatch)
        yield broker


def _name_in_environment(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, broker.bootstrap_servers)
    monkeypatch.delenv(CLUSTER_VARIABLE, raising=False)


def _declared(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the closest markers; what is nearer to the test wins."""
    declared: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        unknown = sorted(set(marker.kwargs) - set(MARKER_ARGUMENTS))
        if marker.args or unknown:
            what = f"{unknown[0]}=…" if unknown else "arguments without a name"
            raise pytest.UsageError(
                f"@pytest.mark.ottla takes {', '.join(MARKER_ARGUMENTS)}, and not {what}: "
                'say @pytest.mark.ottla(topics={"orders": 3})'
            )
        for name in ("topics", "settings"):
            if not isinstance(marker.kwargs.get(name, {}), dict):
                raise pytest.UsageError(
                    f"@pytest.mark.ottla: {name}={marker.kwargs[name]!r} is not a dict: "
                    'say topics={"orders": 3}, settings={"num.partitions": 3}'
                )
        declared |= marker.kwargs
    return declared
