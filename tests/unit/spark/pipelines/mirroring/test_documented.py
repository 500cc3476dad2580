"""The example of docs/pipelines-mirror.md is a pipeline's file that a mirror takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.spark.pipelines.mirroring.start import check_mirror, reading_options
from ottla.spark.pipelines.settings.file import load_pipeline
from ottla.spark.pipelines.settings.model import MirrorSettings, PipelineKind
from support.java import PROJECT

pytestmark = pytest.mark.spec("R6")


def test_the_documented_file_is_a_mirror(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "pipelines-mirror.md").read_text(encoding="utf-8")
    found = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    path = tmp_path / "mirror.toml"
    path.write_text(found[1], encoding="utf-8")
    settings = load_pipeline(path, {})
    assert settings.kind is PipelineKind.mirror
    assert (
        check_mirror(settings)
        == settings.mirror
        == MirrorSettings(
            source_alias="west",
            target_alias="east",
            source_bootstrap_servers="west.example:9092",
            target_bootstrap_servers="east.example:9092",
            topics="orders|clicks-.*",
            group_id="mirror-to-east",
        )
    )
    assert settings.mirror is not None
    options = reading_options(settings.mirror)
    assert options["kafka.group.id"] == "mirror-to-east"
    assert re.search(options["subscribePattern"], "clicks-1")
