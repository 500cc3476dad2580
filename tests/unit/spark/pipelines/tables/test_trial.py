"""Files that are written on trial, on each kind of file system."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.filesystems import open_filesystem
from ottla.spark.pipelines.tables.trial import try_writing
from support.played_s3 import PlayedS3

pytestmark = [pytest.mark.spec("D3"), pytest.mark.slow]


@pytest.mark.parametrize("kind", ["local", "s3", "memory"])
def test_no_file_is_left(kind: str, tmp_path: Path, s3: PlayedS3) -> None:
    url = {"local": str(tmp_path), "s3": s3.url("trial"), "memory": "memory://trial"}[kind]
    options = s3.options if kind == "s3" else {}
    for below in ("", "/a/b"):
        filesystem, folder = open_filesystem(url + below, options)
        try_writing(filesystem, folder, url)
        _, root = open_filesystem(url, options)
        left = filesystem.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
        assert [each for each in left if each.type == fs.FileType.File] == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused_is_said(tmp_path: Path, s3: PlayedS3) -> None:
    filesystem, folder = open_filesystem("s3://nosuchbucket/x", s3.options)
    with pytest.raises(PipelineError, match=r"^s3://nosuchbucket/x cannot be used: .*bucket does not exist"):
        try_writing(filesystem, folder, "s3://nosuchbucket/x")
    (tmp_path / "file").touch()
    filesystem, folder = open_filesystem(str(tmp_path / "file" / "t"), {})
    with pytest.raises(PipelineError, match=r"^the table cannot be used: .*/file is a file and no folder; "):
        try_writing(filesystem, folder, "the table")
