"""Schemas by their id from a schema registry over HTTP (`GET /schemas/ids/{id}`).

Schemas that another one refers to come with it, from `GET /subjects/{subject}/versions/{version}`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from ottla.env.http import HttpError, HttpRequest, exchange

AVRO, PROTOBUF = "AVRO", "PROTOBUF"
DEFAULT_TIMEOUT_MS = 10_000
#: Schemas that are kept; each is asked for once.
MAX_SCHEMAS = 1_000
#: Schemas that one refers to, and those that they refer to.
MAX_REFERENCES = 500
#: Bytes of an answer.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
#: Characters of a reason that a registry says.
MAX_MESSAGE_CHARS = 400
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TYPES = {"schema": str, "id": int}
_WITH_ID = ("schema", "id")
_LOGIN_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class SchemaRegistryError(RuntimeError):
    """A schema registry cannot be reached or does not answer as one; the message names it and the cure."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema, and those that it refers to, each behind the ones that it uses itself. `kind` is its format.

    `names` are those by which the others are referred to: for Protobuf, their files.
    """

    text: str = ""
    references: tuple[str, ...] = ()
    kind: str = AVRO
    names: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with its id."""

    schema_id: int
    schema: SchemaText


class Schemas(Protocol):
    """A source of schemas."""

    def get(self, schema_id: int) -> SchemaText | None:
        """A schema, None where there is none of that id. Raises SchemaRegistryError."""


@dataclass(slots=True)
class RegistrySchemas:
    """Schemas of a registry. `timeout_ms` is for one request, in milliseconds.

    `login` is user:password; without it, the url may have one. `cure` ends the message where the registry
    cannot be reached, `login_cure` where it refuses the login. With `is_serialized` schemas of Protobuf are
    descriptors of files in base64, not their text.
    """

    url: str = field(repr=False)
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    cure: str = "check its address"
    login: str = field(default="", repr=False)
    login_cure: str = ""
    is_serialized: bool = False
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
        return self._schema(answer)

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The newest schema of a subject, None where the registry has no such subject. Raises SchemaRegistryError."""
        answer = self._ask(f"{_path_of(subject)}/versions/latest", f"schema of subject {subject}", wanted=_WITH_ID)
        return None if answer is None else RegisteredSchema(answer["id"], self._schema(answer))

    def id_of(self, subject: str, schema: SchemaText) -> int | None:
        """The id of a subject's schema, None where the subject does not have it. Raises SchemaRegistryError."""
        return self._send(_path_of(subject), subject, schema)

    def register(self, subject: str, schema: SchemaText) -> int:
        """Make it the newest schema of a subject, if it is not there; returns its id. Raises SchemaRegistryError."""
        found = self._send(f"{_path_of(subject)}/versions", subject, schema)
        if found is None:
            raise SchemaRegistryError(f"the schema registry registers no schema of subject {subject}: 404")
        return found

    def _send(self, path: str, subject: str, schema: SchemaText) -> int | None:
        body = {"schema": schema.text} | ({} if schema.kind == AVRO else {"schemaType": schema.kind})
        answer = self._ask(path, f"schema of subject {subject}", body, wanted=("id",))
        return None if answer is None else int(answer["id"])

    def _schema(self, answer: dict[str, Any]) -> SchemaText:
        found: dict[tuple[str, str], tuple[str, str]] = {}
        self._add_references(answer, found, set())
        names, references = zip(*found.values(), strict=True) if found else ((), ())
        return SchemaText(str(answer["schema"]), references, str(answer.get("schemaType") or AVRO), names)

    def _add_references(
        self, answer: dict[str, Any], found: dict[tuple[str, str], tuple[str, str]], seen: set[tuple[str, str]]
    ) -> None:
        """Add the schemas that an answer refers to. One that the registry lacks is a name that the schema lacks."""
        for each in answer.get("references") or ():
            subject, version = str(each["subject"]), str(each["version"])
            if (subject, version) in seen:
                continue
            if len(seen) >= MAX_REFERENCES:
                raise SchemaRegistryError(f"a schema of the registry refers to more than {MAX_REFERENCES} others")
            seen.add((subject, version))
            path = f"{_path_of(subject)}/versions/{quote(version, safe='')}"
            referred = self._ask(path, f"version {version} of subject {subject}")
            if referred is not None:
                self._add_references(referred, found, seen)
                found[subject, version] = str(each.get("name", "")), str(referred["schema"])

    def _ask(
        self, path: str, what: str, sent: dict[str, str] | None = None, wanted: tuple[str, ...] = ("schema",)
    ) -> dict[str, Any] | None:
        """Return the registry's answer, None where it has nothing there. Raises SchemaRegistryError."""
        split_url = urlsplit(self.url)
        shown = f"{split_url.scheme}://{split_url.netloc.rpartition('@')[2]}"
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        login = self.login
        if split_url.username and not login:
            login = f"{unquote(split_url.username)}:{unquote(split_url.password or '')}"
        if login:
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        if sent is not None:
            headers["Content-Type"] = _CONTENT_TYPE
        elif self.is_serialized:
            path += "?format=serialized"
        request = HttpRequest(
            f"{shown}{split_url.path.rstrip('/')}{path}",
            headers,
            None if sent is None else json.dumps(sent).encode(),
            self.timeout_ms,
            self.timeout_ms,
            max_bytes=MAX_ANSWER_BYTES,
        )
        try:
            return _answer_of(exchange(request), shown, wanted)
        except HttpError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            cure = self.cure if error.status is None else self.login_cure if error.status in _LOGIN_STATUSES else ""
            raise SchemaRegistryError(
                f"the schema registry at {shown} gives no {what}: {error}{_message_of(error.body)}"
                f"{cure and f'; {cure}'}"
            ) from None


def _path_of(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _message_of(body: bytes) -> str:
    """The registry's reason for a refusal, where it says one."""
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f": {message[:MAX_MESSAGE_CHARS]}"


def _answer_of(body: bytes, shown: str, wanted: tuple[str, ...]) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or any(not isinstance(answer.get(name), _TYPES[name]) for name in wanted):
        fields = ", ".join(f'"{name}": …' if name == "id" else f'"{name}": "…"' for name in wanted)
        raise SchemaRegistryError(
            f"what answers at {shown} is not a schema registry: expected {{{fields}}}, got {body[:60]!r}"
        )
    references = answer.get("references") or []
    if not isinstance(references, list) or not all(
        isinstance(each, dict) and {"subject", "version"} <= set(each) for each in references
    ):
        raise SchemaRegistryError(f"the references of a schema at {shown} lack subject or version: {references!r:.60}")
    return answer
