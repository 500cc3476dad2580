"""File systems by URL, and files that are created once."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
from pyarrow import fs

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.exclusive import create_exclusively, creates_exclusively
from ottla.spark.pipelines.tables.filesystems import below, filesystem_error, open_filesystem, scheme_of, shown
from ottla.spark.pipelines.tables.opening import open_table
from support.played_s3 import PlayedS3

pytestmark = pytest.mark.spec("D3")


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "{}/"])
def test_local_folders(tmp_path: Path, form: str) -> None:
    filesystem, path = open_filesystem(form.format(tmp_path), {})
    assert isinstance(filesystem, fs.LocalFileSystem)
    assert path == str(tmp_path)


def test_a_file_url_is_unescaped_and_a_path_is_not() -> None:
    assert open_filesystem("file:///tmp/a%20b", {})[1] == "/tmp/a b"
    assert open_filesystem("/tmp/a%20b", {})[1] == "/tmp/a%20b"


def test_what_stands_below_a_url() -> None:
    assert below("/a/b/", "c/d") == "/a/b/c/d"
    assert below("/a?b", "c") == "/a?b/c"
    assert below("s3://bucket", "c") == "s3://bucket/c"
    assert below("s3://bucket/a/?region=x", "c/d") == "s3://bucket/a/c/d?region=x"
    assert below("memory://a", "c") == "memory://a/c"


def test_schemes() -> None:
    assert [scheme_of(url) for url in ("/a", "S3://b", "c:/d", "a/b:/c", "memory://x")] == ["", "s3", "", "", "memory"]


def test_keys_are_not_shown() -> None:
    assert shown("s3://key:secret@bucket/a?secret_key=x") == "s3://bucket/a"


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("nosuch://x/y", {}, r"neither pyarrow nor fsspec knows the scheme nosuch:"),
        ("sftp://127.0.0.1/x", {}, r"needs a package that is not installed: .*paramiko"),
        ("s3:///x", {}, r"names no bucket"),
        ("s3://b/x", {"acess_key": "x", "region": "y"}, r"storage_options acess_key: S3 knows access_key"),
        ("s3://b/x", {"anonymous": "yes", "region": "y"}, r"anonymous = 'yes': write true or false"),
        ("/tmp/x", {"region": "y"}, r"storage_options region: the local file system .* takes none"),
        ("hdfs://127.0.0.1:1/x", {}, r"hdfs://127.0.0.1:1/x cannot be used: .*lib"),
        ("gs://b/x", {"nosuch": "y"}, r"gs://b/x cannot be used: .*nosuch"),
    ],
)
def test_what_cannot_be_opened_is_told_in_one_line(url: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(PipelineError, match=words) as raised:
        open_filesystem(url, options)
    assert "\n" not in str(raised.value)


def test_bad_credentials_are_told() -> None:
    error = filesystem_error(
        "s3://k:s@b/x", OSError("When listing: AWS Error ACCESS_DENIED during ListObjectsV2\nmore")
    )
    assert str(error) == (
        "s3://b/x refuses access: When listing: AWS Error ACCESS_DENIED during ListObjectsV2; "
        "check the keys in storage_options, and their rights"
    )


@pytest.mark.parametrize("path", ["/data/run-403/file", "/credentials/x", "s3://forbidden/401/y"])
def test_a_path_does_not_decide_what_is_wrong(path: str) -> None:
    error = filesystem_error(
        "file:///x", OSError(f"Failed to open local file '{path}'. Detail: [errno 20] Not a directory")
    )
    assert str(error).startswith("file:///x cannot be used: Failed to open")


def test_s3_by_its_options(s3: PlayedS3) -> None:
    filesystem, path = open_filesystem(s3.url("opened"), s3.options)
    with filesystem.open_output_stream(f"{path}/x") as stream:
        stream.write(b"1")
    by_hadoops_name, same = open_filesystem(s3.url("opened").replace("s3:", "s3a:"), s3.options)
    assert same == path
    assert by_hadoops_name.open_input_file(f"{path}/x").readall() == b"1"


def places(tmp_path: Path, s3: PlayedS3) -> dict[str, tuple[fs.FileSystem, str]]:
    return {
        "local": open_filesystem(str(tmp_path), {}),
        "s3": open_filesystem(s3.url("exclusive"), s3.options),
        "memory": open_filesystem("memory://exclusive", {}),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "s3", "memory"])
def test_one_of_many_creates_the_file(tmp_path: Path, s3: PlayedS3, name: str) -> None:
    filesystem, folder = places(tmp_path, s3)[name]
    assert creates_exclusively(filesystem)
    for number in range(5):
        path = f"{folder}/{number}"
        begin = threading.Barrier(8)
        created: list[bytes] = []

        def create(path: str, begin: threading.Barrier, created: list[bytes], data: bytes) -> None:
            begin.wait(60)
            if create_exclusively(filesystem, path, data):
                created.append(data)

        threads = [threading.Thread(target=create, args=(path, begin, created, b"%d" % each)) for each in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(created) == 1
        assert filesystem.open_input_file(path).readall() == created[0]
    if name == "local":
        assert sorted(each.name for each in tmp_path.iterdir()) == ["0", "1", "2", "3", "4"]


def test_a_request_that_was_sent_twice_is_known(s3: PlayedS3) -> None:
    filesystem, folder = open_filesystem(s3.url("twice"), s3.options)
    assert create_exclusively(filesystem, f"{folder}/x", b"mine")
    assert create_exclusively(filesystem, f"{folder}/x", b"mine")
    assert not create_exclusively(filesystem, f"{folder}/x", b"theirs")


def test_a_link_whose_answer_was_lost_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS sends a request again, and the second one finds the link that the first one made."""
    link = os.link

    def link_and_lose(source: str, target: str) -> None:
        link(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", link_and_lose)
    assert create_exclusively(fs.LocalFileSystem(), str(tmp_path / "x"), b"mine")
    assert not create_exclusively(fs.LocalFileSystem(), str(tmp_path / "x"), b"theirs")
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


def test_commits_on_s3_need_boto3(s3: PlayedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem, folder = open_filesystem(s3.url("without"), s3.options)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(PipelineError, match=r"needs boto3: pip install 'ottla\[s3\]'"):
        create_exclusively(filesystem, f"{folder}/x", b"")


@pytest.mark.parametrize(("format", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_tables_of_a_format_need_its_package(
    format: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [each for each in sys.modules if each.startswith(f"ottla.spark.pipelines.tables.{format}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PipelineError, match=rf"needs {package}: pip install 'ottla\[{format}\]'"):
        open_table(TableSinkSettings(format=format, path=str(tmp_path)), "p")


def test_the_best_effort_elsewhere(tmp_path: Path) -> None:
    filesystem = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert not creates_exclusively(filesystem)
    assert create_exclusively(filesystem, "x", b"1")
    assert not create_exclusively(filesystem, "x", b"2")
    assert (tmp_path / "x").read_bytes() == b"1"
