"""A schema registry on loopback that answers what it is told to."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class PlayedRegistry:
    """Serves `GET /schemas/ids/{id}`; notes what was asked for, and with which authorization.

    `subjects` are what `GET` of their paths gives, such as `/subjects/place/versions/1`; `references` those of schemas.
    """

    def __init__(self, schemas: dict[int, str]) -> None:
        self.schemas = schemas
        self.subjects: dict[str, dict[str, Any]] = {}
        self.references: dict[int, list[dict[str, Any]]] = {}
        #: Body and status to answer with instead.
        self.instead: tuple[int, bytes] | None = None
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        played = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                played.paths.append(self.path)
                played.authorizations.append(self.headers.get("Authorization"))
                status, body = played.answer(self.path)
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
        if path.startswith("/subjects/"):
            found = self.subjects.get(path)
            return (404, b'{"error_code":40401}') if found is None else (200, json.dumps(found).encode())
        number = int(path.rpartition("/")[2])
        schema = self.schemas.get(number)
        if schema is None:
            return 404, b'{"error_code":40403,"message":"Schema not found"}'
        return 200, json.dumps({"schema": schema, "references": self.references.get(number, [])}).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
