"""Pipelines' configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines.archive import ArchiveConfig
from ottla.spark.pipelines.config import PipelineConfigError, load_config, parse_config
from ottla.spark.pipelines.mirror import MirrorConfig
from ottla.spark.pipelines.online import OnlineConfig

COMMON = {"bootstrap_servers": "h:1", "topic": "t", "group_id": "g", "checkpoint": "c"}
FILE = """\
bootstrap_servers = "h:1"
topic = "t"
group_id = "g"
checkpoint = "c"
output = "o"
fields = "a STRING"
partition_by = ["a"]
trigger_seconds = 5
once = true
max_offsets_per_trigger = 100
"""


def test_a_small_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "archive.toml"
    path.write_text(FILE)
    config = load_config(ArchiveConfig, path)
    assert config == ArchiveConfig(
        **COMMON,
        output="o",
        fields="a STRING",
        partition_by=("a",),
        trigger_seconds=5,
        once=True,
        max_offsets_per_trigger=100,
    )
    assert config.starting_offsets == "earliest"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"outptu": "o"}, "unknown setting 'outptu'; did you mean output?"),
        ({"zzz": 1}, "unknown setting 'zzz'; known are"),
        ({"output": 5}, "setting output: 5 is not a string"),
        ({"output": "o", "once": "yes"}, "setting once: 'yes' is not true or false"),
        ({"output": "o", "once": 1}, "setting once: 1 is not true or false"),
        ({"output": "o", "trigger_seconds": True}, "setting trigger_seconds: True is not a number"),
        ({"output": "o", "max_offsets_per_trigger": 1.5}, "setting max_offsets_per_trigger: 1.5 is not a whole number"),
        ({"output": "o", "by": 3}, "setting by: 3 is not a string"),
        ({}, "settings missing: output"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(PipelineConfigError) as refused:
        parse_config(OnlineConfig, COMMON | settings)
    assert complaint in str(refused.value)


def test_lists_are_of_strings() -> None:
    with pytest.raises(PipelineConfigError, match="setting partition_by: 'a' is not a list of strings"):
        parse_config(ArchiveConfig, COMMON | {"output": "o", "fields": "a INT", "partition_by": "a"})
    with pytest.raises(PipelineConfigError, match="not a list of strings"):
        parse_config(ArchiveConfig, COMMON | {"output": "o", "fields": "a INT", "partition_by": [1]})


def test_everything_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(PipelineConfigError, match="settings missing: topic, group_id, target_bootstrap_servers"):
        parse_config(MirrorConfig, {"bootstrap_servers": "h:1", "checkpoint": "c"})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PipelineConfigError, match="cannot read"):
        load_config(MirrorConfig, tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(PipelineConfigError, match=r"bad\.toml is not TOML"):
        load_config(MirrorConfig, tmp_path / "bad.toml")


def test_defaults_are_for_what_the_file_does_not_set(tmp_path: Path) -> None:
    path = tmp_path / "archive.toml"
    path.write_text(FILE)
    assert load_config(ArchiveConfig, path, {"bootstrap_servers": "elsewhere:1"}) == load_config(ArchiveConfig, path)
    path.write_text("\n".join(line for line in FILE.splitlines() if not line.startswith("bootstrap_servers")))
    assert load_config(ArchiveConfig, path, {"bootstrap_servers": "elsewhere:1"}).bootstrap_servers == "elsewhere:1"
