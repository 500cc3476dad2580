"""A file that one of several writers creates, once and whole: the basis of commits to a table of files.

On the local file system the bytes are written and flushed under another name first: no reader sees half of them.
S3 has a conditional put (`If-None-Match: *`), which pyarrow cannot send; boto3 does. fsspec's file systems have
`mode="create"`, a condition of the store for s3fs, gcsfs and adlfs, and of this process for memory. For others, and for
pyarrow's own Google, Azure and HDFS, there is none: the file is looked for, written, and read again, which tells two
drivers apart unless they write at the same moment.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from functools import lru_cache
from typing import Any, Final

import pyarrow.fs
from pyarrow import fs

from ottla.records.extras import MissingExtraError, require_extra
from ottla.spark.pipelines.errors import PipelineError

#: fsspec's protocols whose `pipe_file(mode="create")` is a condition that the store checks.
_CONDITIONAL: Final = {"s3", "s3a", "gcs", "gs", "abfs", "abfss", "az", "adl"}
#: S3 refuses a conditional put while another one of the same name is under way; then it is asked again.
_PUTS_AT_MOST: Final = 10
_CLIENT_SETTINGS: Final = (
    "access_key",
    "secret_key",
    "session_token",
    "anonymous",
    "region",
    "scheme",
    "endpoint_override",
    "force_virtual_addressing",
    "tls_ca_file_path",
)
_IN_PROCESS: Final = threading.Lock()


def creates_exclusively(filesystem: pyarrow.fs.FileSystem) -> bool:
    """Whether `create_exclusively` is one conditional step here, not the best effort."""
    if isinstance(filesystem, (fs.LocalFileSystem, fs.S3FileSystem)):
        return True
    protocols = _fsspec_protocols(filesystem)
    return "memory" in protocols or bool(protocols & _CONDITIONAL)


def create_exclusively(filesystem: pyarrow.fs.FileSystem, path: str, data: bytes) -> bool:
    """Create this file with this content, durably; False, and nothing changed, where the path is taken.

    `data` must be this caller's alone (a token in it), since a request that was sent twice is known by it. The folder
    must be there, on file systems that have folders. Raises OSError, and PipelineError where S3 is asked and
    boto3 is not installed.
    """
    if isinstance(filesystem, fs.LocalFileSystem):
        return _link(path, data)
    if isinstance(filesystem, fs.S3FileSystem):
        return _put_to_s3(filesystem, path, data)
    protocols = _fsspec_protocols(filesystem)
    if not creates_exclusively(filesystem):
        return _best_effort(filesystem, path, data)
    store = filesystem.handler.fs
    with _IN_PROCESS:  # memory: looks first and writes then
        if "memory" in protocols and store.exists(path):
            return False
        try:
            store.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
    return True


def flush_folder(path: str) -> None:
    """Force a local folder's entries to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _link(path: str, data: bytes) -> bool:
    """A link is made at once or not at all, and never replaces; names that begin with a dot are hidden to readers."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            # NFS: the answer to the first request was lost, and the second one finds the link of the first.
            if os.stat(temporary).st_nlink == 1:
                return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            raise PipelineError(
                f"{folder}: this file system has no hard links, which commits need; use another one"
            ) from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    flush_folder(folder)
    return True


def _put_to_s3(filesystem: pyarrow.fs.S3FileSystem, path: str, data: bytes) -> bool:
    try:
        require_extra("a table of Parquet files on S3", "s3", "boto3")
    except MissingExtraError as error:
        raise PipelineError(str(error)) from None
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = path.partition("/")
    client = _s3_client(*_client_arguments(filesystem))
    for _ in range(_PUTS_AT_MOST):
        try:
            client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status == 412:  # taken; perhaps by this very request, whose first answer was lost
                return bool(filesystem.open_input_file(path).readall() == data)
            if status != 409:
                raise OSError(str(error)) from error
        except BotoCoreError as error:
            raise OSError(str(error)) from error
        else:
            return True
    raise OSError(f"{path}: other requests for this name were under way {_PUTS_AT_MOST} times in a row")


def _client_arguments(filesystem: pyarrow.fs.S3FileSystem) -> tuple[str | bool, ...]:
    """The settings of this file system, which it gives for pickling."""
    settings: dict[str, Any] = filesystem.__reduce__()[1][0]
    return tuple(settings[name] for name in _CLIENT_SETTINGS)


@lru_cache(maxsize=8)
def _s3_client(*arguments: str | bool) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    settings: dict[str, Any] = dict(zip(_CLIENT_SETTINGS, arguments, strict=True))
    endpoint = settings["endpoint_override"]
    if endpoint and "://" not in endpoint:
        endpoint = f"{settings['scheme'] or 'https'}://{endpoint}"
    style = "virtual" if settings["force_virtual_addressing"] or not endpoint else "path"
    return boto3.session.Session().client(
        "s3",
        region_name=settings["region"] or None,
        endpoint_url=endpoint or None,
        aws_access_key_id=settings["access_key"] or None,
        aws_secret_access_key=settings["secret_key"] or None,
        aws_session_token=settings["session_token"] or None,
        verify=settings["tls_ca_file_path"] or None,
        config=Config(s3={"addressing_style": style}, signature_version=UNSIGNED if settings["anonymous"] else None),
    )


def _best_effort(filesystem: pyarrow.fs.FileSystem, path: str, data: bytes) -> bool:
    if filesystem.get_file_info(path).type != fs.FileType.NotFound:
        return False
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)
    with filesystem.open_input_file(path) as file:
        return bool(file.readall() == data)


def _fsspec_protocols(filesystem: pyarrow.fs.FileSystem) -> set[str]:
    store = getattr(getattr(filesystem, "handler", None), "fs", None)
    protocol = getattr(store, "protocol", ())
    return {protocol} if isinstance(protocol, str) else set(protocol)
