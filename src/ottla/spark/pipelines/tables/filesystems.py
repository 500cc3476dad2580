"""File systems by URL: what pyarrow has itself (local, S3, Google, Azure, HDFS), and all that fsspec has.

`open_filesystem` runs in the driver and in each task, and asks nothing of the network, but for the region of a bucket
whose region was not given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from ottla.records.extras import MissingExtraError, require_extra
from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError

if TYPE_CHECKING:
    import pyarrow.fs

#: What storage_options may say for s3:// URLs, as pyarrow's S3FileSystem knows it.
S3_OPTIONS: Final = (
    "access_key",
    "anonymous",
    "endpoint_override",
    "force_virtual_addressing",
    "region",
    "scheme",
    "secret_key",
    "session_token",
    "tls_ca_file_path",
)
_BOOLEANS: Final = ("anonymous", "force_virtual_addressing")
_OWN_SCHEMES: Final = {"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"}
#: File systems of pyarrow whose folders are only the beginnings of names.
_WITHOUT_FOLDERS: Final = ("s3", "gcs", "abfs")
#: What file systems say when they know neither the user nor the key.
_CREDENTIALS: Final = re.compile(
    r"access.?denied|invalid.?access|signature|forbidden|unauthor|credential|expired.?token|\b40[13]\b|no identity",
    re.IGNORECASE,
)
#: What paths are named in a message, which may look like that, too (`/data/403/credentials`).
_PATHS: Final = re.compile(r"\S*/\S*")


def open_filesystem(url: str, storage_options: Mapping[str, str]) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a path or URL, and the path in it, without a slash at its end.

    A path without scheme, and file:, are the local file system. For s3: storage_options are `S3_OPTIONS`; for other
    schemes they are the keywords of pyarrow's file system, or of fsspec's where pyarrow knows none.

    Raises PipelineError for an unknown scheme, a package that is not installed, options that do not fit.
    """
    try:
        require_extra("a table of files", "arrow", "pyarrow")
    except MissingExtraError as error:
        raise PipelineError(str(error)) from None
    from pyarrow import fs

    scheme = scheme_of(url)
    if is_local(url):
        path = url if not scheme else unquote(urlsplit(url).path)
        if storage_options:
            named = ", ".join(sorted(storage_options))
            raise PipelineSettingsError(f"storage_options {named}: the local file system ({url}) takes none")
        return fs.LocalFileSystem(), os.path.abspath(path)
    try:
        if scheme in _OWN_SCHEMES:
            filesystem, path = _arrows_own(fs, scheme, url, storage_options)
        else:
            filesystem, path = _by_fsspec(fs, scheme, url, storage_options)
    except (ImportError, OSError, ValueError, TypeError, NotImplementedError) as error:
        if isinstance(error, PipelineError):
            raise
        raise filesystem_error(url, error) from error
    return filesystem, path.rstrip("/")


def has_folders(filesystem: pyarrow.fs.FileSystem) -> bool:
    """Whether folders are made and removed there; in object stores they are beginnings of names."""
    return filesystem.type_name not in _WITHOUT_FOLDERS


def is_local(url: str) -> bool:
    """Whether a URL or path is one of this machine's own file system."""
    return scheme_of(url) in ("", "file")


def scheme_of(url: str) -> str:
    """The scheme of a URL in small letters; empty for a plain path, and for a drive letter."""
    matched = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", url)
    return matched[1].lower() if matched else ""


def below(url: str, relative: str) -> str:
    """The URL (or path) of what stands at this relative path under the folder `url`."""
    if not scheme_of(url):
        return f"{url.rstrip('/')}/{relative}"
    split_url = urlsplit(url)
    return urlunsplit(split_url._replace(path=f"{split_url.path.rstrip('/')}/{relative}"))


def shown(url: str) -> str:
    """The URL as messages may show it: without user, password and query."""
    if not scheme_of(url):
        return url
    split_url = urlsplit(url)
    return urlunsplit(split_url._replace(netloc=split_url.netloc.rpartition("@")[2], query=""))


def filesystem_error(url: str, error: Exception) -> PipelineError:
    """Describe a file system's error, in one sentence with the likely cure."""
    lines = str(error).strip().splitlines()
    said = lines[0].strip() if lines else type(error).__name__
    place = shown(url)
    if isinstance(error, ImportError):
        return PipelineError(f"{place} needs a package that is not installed: {said}")
    if isinstance(error, PermissionError) or _CREDENTIALS.search(_PATHS.sub(" ", said)):
        return PipelineError(f"{place} refuses access: {said}; check the keys in storage_options, and their rights")
    if isinstance(error, FileNotFoundError):
        return PipelineError(f"{place} is not there: {said}")
    return PipelineError(f"{place} cannot be used: {said}")


def _arrows_own(fs: Any, scheme: str, url: str, options: Mapping[str, str]) -> tuple[Any, str]:
    if scheme.startswith("s3"):
        return _s3(fs, "s3" + url[len(scheme) :], options)
    split_url = urlsplit(url)
    path = (split_url.netloc.rpartition("@")[2] + unquote(split_url.path)).strip("/")
    if not options or scheme in ("hdfs", "viewfs"):
        filesystem, path = fs.FileSystem.from_uri(url)
        return filesystem, path
    if scheme in ("gs", "gcs"):
        return fs.GcsFileSystem(**_typed(options)), path
    container = split_url.netloc.partition("@")[0]
    return fs.AzureFileSystem(**_typed(options)), f"{container}/{unquote(split_url.path).strip('/')}"


def _s3(fs: Any, url: str, options: Mapping[str, str]) -> tuple[Any, str]:
    split_url = urlsplit(url)
    if split_url.query or "@" in split_url.netloc:  # pyarrow's own way to say all in the URL
        filesystem, path = fs.FileSystem.from_uri(url)
        return filesystem, path
    unknown = sorted(set(options) - set(S3_OPTIONS))
    if unknown:
        raise PipelineSettingsError(
            f"storage_options {', '.join(unknown)}: S3 knows {', '.join(S3_OPTIONS)}; leave the others out"
        )
    if not split_url.netloc:
        raise PipelineSettingsError(f"{url} names no bucket; write s3://BUCKET/FOLDER")
    typed = _typed(options)
    endpoint = options.get("endpoint_override")
    if endpoint and "://" in endpoint:
        typed["scheme"], _, typed["endpoint_override"] = endpoint.partition("://")
    if "region" not in typed:
        typed["region"] = "us-east-1" if endpoint else fs.resolve_s3_region(split_url.netloc)
    return fs.S3FileSystem(**typed), split_url.netloc + unquote(split_url.path)


def _by_fsspec(fs: Any, scheme: str, url: str, options: Mapping[str, str]) -> tuple[Any, str]:
    try:
        import fsspec
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise PipelineError(f"{shown(url)}: pyarrow knows no {scheme}:, and fsspec is not installed") from None
    if scheme not in fsspec.available_protocols():
        raise PipelineSettingsError(f"{shown(url)}: neither pyarrow nor fsspec knows the scheme {scheme}:; use another")
    # fsspec hands out one object for equal arguments, and pyarrow shares it between threads: that is meant so.
    opened, path = url_to_fs(url, **_typed(options))
    return fs.PyFileSystem(fs.FSSpecHandler(opened)), path


def _typed(options: Mapping[str, str]) -> dict[str, Any]:
    return {key: _boolean(key, value) if key in _BOOLEANS else value for key, value in options.items()}


def _boolean(key: str, value: str) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise PipelineSettingsError(f"storage_options {key} = {value!r}: write true or false")
    return text == "true"
