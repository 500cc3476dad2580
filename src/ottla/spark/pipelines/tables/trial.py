"""A trial before anything runs: whether files can be written where a table is, or will be."""

from __future__ import annotations

import secrets
from typing import Final

import pyarrow.fs
from pyarrow.fs import FileType

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.filesystems import filesystem_error, has_folders

_NAME: Final = "_ottla-check-"


def try_writing(filesystem: pyarrow.fs.FileSystem, folder: str, place: str) -> None:
    """Create and remove a small file in the folder, or in the nearest one above it that is there.

    So no file is left, and a folder that is still to be made is not made (pyarrow leaves S3 an empty object for the
    folder). The file's name begins with `_`, so that readers pass over it. `place` names the folder in messages.
    Raises PipelineError.
    """
    try:
        path = f"{_nearest(filesystem, folder)}/{_NAME}{secrets.token_hex(8)}"
        with filesystem.open_output_stream(path) as file:
            file.write(b"ottla pipeline check")
        filesystem.delete_file(path)
    except FileNotFoundError as error:
        said = str(error).split("\n", 1)[0]
        raise PipelineError(f"{place} cannot be made or written to: {said}; correct its path") from error
    except Exception as error:  # fsspec's file systems pass on those of their stores
        raise filesystem_error(place, error) from error


def _nearest(filesystem: pyarrow.fs.FileSystem, folder: str) -> str:
    """The folder, or what is above it and there; object stores have no folders. Raises OSError if it is a file."""
    if not has_folders(filesystem):
        return folder
    nearest = folder
    while nearest:
        found = filesystem.get_file_info(nearest).type
        if found == FileType.File:
            raise NotADirectoryError(f"{nearest} is a file and no folder; name another folder")
        if found != FileType.NotFound:
            break
        nearest = nearest.rpartition("/")[0]
    return nearest
