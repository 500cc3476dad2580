"""The demo's output folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.demo.course import prepare_output
from ottla.demo.inputs import InputError


def test_only_the_demo_s_own_files_are_cleared(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "out"
    prepare_output(output)
    (output / "archive" / "date=1").mkdir(parents=True)
    (output / "pipelines").mkdir()
    (output / "online.sqlite").write_text("old")
    (output / "report.html").write_text("old")
    (output / "notes.txt").write_text("mine")
    prepare_output(output)
    assert sorted(each.name for each in output.iterdir()) == [".ottla-demo", "notes.txt"]


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    with pytest.raises(InputError, match="holds files that are not the demo's"):
        prepare_output(tmp_path)
    assert (tmp_path / "archive").exists()


def test_an_empty_directory_will_do_and_a_file_will_not(tmp_path: Path) -> None:
    prepare_output(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file; name a folder"):
        prepare_output(tmp_path / "file")
    with pytest.raises(InputError, match=r"file/x: Not a directory"):
        prepare_output(tmp_path / "file" / "x")
