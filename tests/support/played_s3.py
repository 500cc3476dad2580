"""An S3 of moto's on a free port of 127.0.0.1, with one bucket."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

BUCKET = "tables"


@dataclass(frozen=True, slots=True)
class PlayedS3:
    """`options` are the storage_options that reach it."""

    endpoint: str
    options: Mapping[str, str]

    def url(self, folder: str) -> str:
        return f"s3://{BUCKET}/{folder}"


class OneWriteAtATime:
    """Makes writes atomic, as those of S3 are: moto looks for an object (If-None-Match), and then puts it there."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._writing = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._app(environ, start_response)
        with self._writing:
            return self._app(environ, start_response)


@contextmanager
def served() -> Iterator[int]:
    """The port of a server of moto's, with a thread for each connection."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    app = OneWriteAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, name="played S3", daemon=True)
    thread.start()
    try:
        yield server.port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def played_s3() -> Iterator[PlayedS3]:
    """An empty S3, for as long as the block."""
    import boto3

    with served() as port:
        endpoint = f"http://127.0.0.1:{port}"
        options = {"endpoint_override": endpoint, "access_key": "key", "secret_key": "secret", "region": "us-east-1"}
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield PlayedS3(endpoint, options)
