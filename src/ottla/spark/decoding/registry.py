"""Schemas by their id for the tasks of Spark: of files, or from a schema registry.

An unreachable registry is not a record's fault: it ends the task with a sentence, and Spark tries again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from ottla.decoding.registry import MAX_SCHEMAS, RegistrySchemas, SchemaRegistryError, Schemas, SchemaText
from ottla.spark.errors import OptionError, SparkRefusal

#: Bytes of a folder's schemas together.
MAX_FOLDER_BYTES = 16 * 1024 * 1024
CURE = "check option schemaRegistry, and that executors can reach it"

_FILE_OF_ID = re.compile(r"([0-9]{1,10})(\.[A-Za-z]+)?")


class RegistryRefusal(SparkRefusal, SchemaRegistryError):
    """A SchemaRegistryError as the user of Spark gets it, without a traceback."""


@dataclass(frozen=True, slots=True)
class FolderSchemas:
    """Schemas of a folder, read on the driver."""

    texts: Mapping[int, str]
    folder: str

    def get(self, schema_id: int) -> SchemaText | None:
        """A schema, None where the folder has none of that id."""
        text = self.texts.get(schema_id)
        return None if text is None else SchemaText(text)


@dataclass(frozen=True, slots=True)
class TaskSchemas:
    """Schemas of a registry."""

    registry: RegistrySchemas

    def get(self, schema_id: int) -> SchemaText | None:
        """A schema, None where the registry has none of that id. Raises RegistryRefusal."""
        try:
            return self.registry.get(schema_id)
        except SchemaRegistryError as problem:
            raise RegistryRefusal(str(problem)) from None


def find_schemas(place: str, timeout_ms: int) -> Schemas:
    """The registry at an address, or the schemas in a folder: files named by id, `7.avsc`. Raises OptionError."""
    split_url = urlsplit(place)
    if split_url.scheme in ("http", "https"):
        if not split_url.hostname or not _has_valid_port(split_url):
            raise OptionError("option schemaRegistry: the address has no host, or no valid port; give http://host:port")
        return TaskSchemas(RegistrySchemas(place, timeout_ms, CURE))
    folder = Path(place.removeprefix("file://"))
    if not folder.is_dir():
        raise OptionError(
            f"option schemaRegistry: {place!r} is neither a folder here nor an address such as http://host:8081"
        )
    return _read_folder(folder)


def _has_valid_port(split_url: SplitResult) -> bool:
    try:
        return split_url.port is None or split_url.port > 0
    except ValueError:
        return False


def _read_folder(folder: Path) -> FolderSchemas:
    texts: dict[int, str] = {}
    size = 0
    for path in sorted(folder.iterdir()):
        found = _FILE_OF_ID.fullmatch(path.name)
        if found is None or not path.is_file():
            continue
        size += path.stat().st_size
        if len(texts) >= MAX_SCHEMAS or size > MAX_FOLDER_BYTES:
            raise OptionError(f"option schemaRegistry: {str(folder)!r} has more than {MAX_SCHEMAS} schemas or 16 MiB")
        texts[int(found[1])] = path.read_text()
    if not texts:
        raise OptionError(f"option schemaRegistry: {str(folder)!r} has no file named by a schema's id, such as 7.avsc")
    return FolderSchemas(texts, str(folder))
