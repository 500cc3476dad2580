"""Schemas by their id: of files, or from a schema registry over HTTP (`GET /schemas/ids/{id}`).

Schemas that another one refers to come with it, from `GET /subjects/{subject}/versions/{version}`.

An unreachable registry is not a record's fault: it ends the task with a sentence, and Spark tries again.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ottla.spark.errors import OptionError, SparkRefusal

DEFAULT_TIMEOUT_MS = 10_000
#: Schemas that a task keeps; each is asked for once.
MAX_SCHEMAS = 1_000
#: Schemas that one refers to, and those that they refer to.
MAX_REFERENCES = 500
#: Bytes of an answer, and of a folder's schemas together.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_FOLDER_BYTES = 16 * 1024 * 1024

_FILE_OF_ID = re.compile(r"([0-9]{1,10})(\.[A-Za-z]+)?")


class SchemaRegistryError(SparkRefusal, RuntimeError):
    """A schema registry cannot be reached or does not answer as one; the message names it and the cure."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema, and those that it refers to, each behind the ones that it uses itself."""

    text: str = ""
    references: tuple[str, ...] = ()


class Schemas(Protocol):
    """A source of schemas."""

    def get(self, schema_id: int) -> SchemaText | None:
        """A schema, None where there is none of that id. Raises SchemaRegistryError."""


@dataclass(frozen=True, slots=True)
class FolderSchemas:
    """Schemas of a folder, read on the driver."""

    texts: Mapping[int, str]
    folder: str

    def get(self, schema_id: int) -> SchemaText | None:
        """A schema, None where the folder has none of that id."""
        text = self.texts.get(schema_id)
        return None if text is None else SchemaText(text)


@dataclass(slots=True)
class RegistrySchemas:
    """Schemas of a registry. `url` may have a login; `timeout_ms` is for one request, in milliseconds."""

    url: str = field(repr=False)
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    _known: dict[int, SchemaText | None] = field(default_factory=dict, compare=False, repr=False)

    def get(self, schema_id: int) -> SchemaText | None:
        """A schema, None where the registry has none of that id. Raises SchemaRegistryError."""
        if schema_id not in self._known:
            if len(self._known) >= MAX_SCHEMAS:
                self._known.clear()
            self._known[schema_id] = self._fetch(schema_id)
        return self._known[schema_id]

    def _fetch(self, schema_id: int) -> SchemaText | None:
        answer = self._ask(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
        if answer is None:
            return None
        references: list[str] = []
        self._add_references(answer, references, set())
        return SchemaText(str(answer["schema"]), tuple(references))

    def _add_references(self, answer: dict[str, Any], found: list[str], seen: set[tuple[str, str]]) -> None:
        """Add the schemas that an answer refers to. One that the registry lacks is a name that the schema lacks."""
        for each in answer.get("references") or ():
            subject, version = str(each["subject"]), str(each["version"])
            if (subject, version) in seen:
                continue
            if len(seen) >= MAX_REFERENCES:
                raise SchemaRegistryError(f"a schema of the registry refers to more than {MAX_REFERENCES} others")
            seen.add((subject, version))
            path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"
            referred = self._ask(path, f"version {version} of subject {subject}")
            if referred is not None:
                self._add_references(referred, found, seen)
                found.append(str(referred["schema"]))

    def _ask(self, path: str, what: str) -> dict[str, Any] | None:
        """Return the registry's answer, None where it has nothing there. Raises SchemaRegistryError."""
        split_url = urlsplit(self.url)
        made = http.client.HTTPSConnection if split_url.scheme == "https" else http.client.HTTPConnection
        shown = f"{split_url.scheme}://{split_url.hostname}{f':{split_url.port}' if split_url.port else ''}"
        connection = made(split_url.hostname or "", split_url.port, timeout=self.timeout_ms / 1000)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if split_url.username:
            login = f"{unquote(split_url.username)}:{unquote(split_url.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        try:
            connection.request("GET", split_url.path.rstrip("/") + path, headers=headers)
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException, ssl.SSLError) as problem:
            raise SchemaRegistryError(
                f"the schema registry at {shown} gives no {what} ({type(problem).__name__}: {problem}); "
                "check option schemaRegistry, and that executors can reach it"
            ) from None
        finally:
            connection.close()
        if response.status == http.HTTPStatus.NOT_FOUND:
            return None
        if response.status != http.HTTPStatus.OK:
            raise SchemaRegistryError(
                f"the schema registry at {shown} answers {response.status} {response.reason} for {what}"
            )
        return _answer_of(body, shown)


def _answer_of(body: bytes, shown: str) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if len(body) > MAX_ANSWER_BYTES or not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise SchemaRegistryError(
            f'what answers at {shown} is not a schema registry: expected {{"schema": "…"}}, got {body[:60]!r}'
        )
    references = answer.get("references") or []
    if not isinstance(references, list) or not all(
        isinstance(each, dict) and {"subject", "version"} <= set(each) for each in references
    ):
        raise SchemaRegistryError(f"the references of a schema at {shown} lack subject or version: {references!r:.60}")
    return answer


def find_schemas(place: str, timeout_ms: int) -> Schemas:
    """The registry at an address, or the schemas in a folder: files named by id, `7.avsc`. Raises OptionError."""
    split_url = urlsplit(place)
    if split_url.scheme in ("http", "https"):
        if not split_url.hostname or not _has_valid_port(split_url):
            raise OptionError("option schemaRegistry: the address has no host, or no valid port; give http://host:port")
        return RegistrySchemas(place, timeout_ms)
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
