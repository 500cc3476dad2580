from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.config import reference
from ottla.config.settings import (
    BROKER_SETTINGS,
    HONOURED,
    NO_EFFECT,
    REFUSED,
    SYNONYM_GROUPS,
    TOPIC_SETTINGS,
    TOPIC_SYNONYMS,
    nearest_name,
)

PROJECT = Path(__file__).resolve().parents[3]


def test_every_setting_is_documented_and_has_an_effect() -> None:
    for setting in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]:
        assert setting.effect in (HONOURED, NO_EFFECT, REFUSED), setting.name
        assert setting.documentation.endswith("."), setting.name
        assert len(setting.documentation) > 20, setting.name


def test_the_reference_is_current() -> None:
    page = (PROJECT / "docs" / "settings.md").read_text()
    assert page == reference.render(), "run: python -m ottla.config.reference > docs/settings.md"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("num.partition", "num.partitions"), ("log.retention.hour", "log.retention.hours"), ("xyzzy", None)],
)
def test_the_nearest_name(name: str, nearest: str | None) -> None:
    assert nearest_name(name, BROKER_SETTINGS) == nearest


def test_synonyms_are_settings() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        assert name in TOPIC_SETTINGS
        assert all(synonym in BROKER_SETTINGS for synonym in synonyms)


def sources() -> str:
    """The code but for what judges all settings alike, and clients and commands: theirs have the same names."""
    alike = ("container.py", "settings.py", "refusals.py", "rules.py", "reference.py", "dynamic.py")
    package = PROJECT / "src" / "ottla"
    left_out = {package / "config" / name for name in alike}
    clients = {
        package / name for name in ("cli", "client", "ops", "peer", "profiles", "security", "spark", "zkconsumer")
    }
    files = [path for path in package.rglob("*.py") if path not in left_out and clients.isdisjoint(path.parents)]
    # Those by which brokers log in, to others as clients do, and take logins.
    logins = (package / "security" / name for name in ("oauth_login.py", "kerberos.py"))
    return "".join(path.read_text() for path in (*files, *logins))


def test_a_setting_is_honoured_if_and_only_if_something_reads_it() -> None:
    code = sources()
    # The older bound of timestamps is read where a LogConfig is made.
    # The controller reads whether unclean elections are allowed from the topic's own settings.
    # Throttled replicas are parsed where a LogConfig is made.
    topic_settings_read = {"message.timestamp.difference.max.ms", "unclean.leader.election.enable"}
    topic_settings_read |= {f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
    topic_settings_read |= {name for name in TOPIC_SETTINGS if re.search(rf"\.{name.replace('.', '_')}\b", code)}
    # Mentioned where values are parsed, not acted on.
    parsing = {"group.consumer.migration.policy"}
    # Read of one listener and mechanism only.
    parsing |= {f"sasl.{side}.callback.handler.class" for side in ("login", "server")} | {"sasl.jaas.config"}
    read = {name for name in BROKER_SETTINGS if f'"{name}"' in code} - parsing
    # The settings of time that have several units are read by the rules that choose among them.
    chosen = {name for group in SYNONYM_GROUPS for name in group} | {
        "broker.id.generation.enable",
        "reserved.broker.max.id",
    }
    for name, synonyms in TOPIC_SYNONYMS.items():
        if name in topic_settings_read:
            read.update(synonyms)
    honoured = {setting.name for setting in BROKER_SETTINGS.values() if setting.effect == HONOURED}
    assert honoured - read - chosen == set()
    assert read - honoured == set()
    honoured_of_topics = {setting.name for setting in TOPIC_SETTINGS.values() if setting.effect == HONOURED}
    assert honoured_of_topics == topic_settings_read


def test_importing_the_settings_pulls_in_nothing_heavy() -> None:
    heavy = "{'difflib', 'json', 'dataclasses', 'asyncio'}"
    code = f"import sys, ottla.config.topic; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert out.stdout.strip() == "[]"
