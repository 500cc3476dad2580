from __future__ import annotations

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


def test_importing_the_settings_pulls_in_nothing_heavy() -> None:
    heavy = "{'difflib', 'json', 'dataclasses', 'asyncio'}"
    code = f"import sys, ottla.config.topic; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert out.stdout.strip() == "[]"
