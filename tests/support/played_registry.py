"""A schema registry on loopback that answers what it is told to."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class PlayedRegistry:
    """Serves `GET /schemas/ids/{id}`; notes what was asked for, and with which authorization.

    Of the schemas, `versions` has those of each subject: the last one is given as `versions/latest`, a schema is looked
    up by `POST /subjects/{subject}`, and registered by `POST /subjects/{subject}/versions`.

    `subjects` are what `GET` of their paths gives, such as `/subjects/place/versions/1`; `references` those of schemas.
    """

    def __init__(self, schemas: dict[int, str]) -> None:
        self.schemas = schemas
        self.subjects: dict[str, dict[str, Any]] = {}
        #: Schemas of Protobuf: descriptors of files in base64, which are given as such only.
        self.protobuf: dict[int, str] = {}
        self.versions: dict[str, list[int]] = {}
        self.references: dict[int, list[dict[str, Any]]] = {}
        #: Body and status to answer with instead.
        self.instead: tuple[int, bytes] | None = None
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        played = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(*played.answer(self.path))

            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.reply(*played.answer_to(self.path, sent))

            def reply(self, status: int, body: bytes) -> None:
                played.paths.append(self.path)
                played.authorizations.append(self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="played registry")

    def answer(self, path: str) -> tuple[int, bytes]:
        """Status and body for a path."""
        if self.instead is not None:
            return self.instead
        path, _, query = path.partition("?")
        if path.startswith("/subjects/"):
            found = self.subjects.get(path)
            _, _, subject, *version = path.split("/")
            if self.versions.get(subject) and version == ["versions", "latest"]:
                number = self.versions[subject][-1]
                found = {"subject": subject, "id": number, **self._schema(number, query)}
            return (404, b'{"error_code":40401}') if found is None else (200, json.dumps(found).encode())
        number = int(path.rpartition("/")[2])
        if number not in self.schemas and number not in self.protobuf:
            return 404, b'{"error_code":40403,"message":"Schema not found"}'
        return 200, json.dumps(self._schema(number, query)).encode()

    def _schema(self, number: int, query: str) -> dict[str, Any]:
        references = self.references.get(number, [])
        if number not in self.protobuf:
            return {"schema": self.schemas[number], "references": references}
        serialized = self.protobuf[number] if query == "format=serialized" else 'syntax = "proto3";'
        return {"schemaType": "PROTOBUF", "schema": serialized, "references": references}

    def answer_to(self, path: str, sent: dict[str, Any]) -> tuple[int, bytes]:
        """Status and body for a schema that was sent."""
        if self.instead is not None:
            return self.instead
        _, _, subject, *version = path.split("/")
        numbers = self.versions.setdefault(subject, [])
        found = next((each for each in numbers if self.schemas[each] == sent["schema"]), None)
        if found is None and version:
            found = max(self.schemas, default=0) + 1
            self.schemas[found] = sent["schema"]
            numbers.append(found)
        if found is None:
            return 404, b'{"error_code":40403,"message":"Schema not found"}'
        return 200, json.dumps({"id": found}).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
