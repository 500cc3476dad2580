"""An S3 of moto's on a free port of 127.0.0.1, with one bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

BUCKET = "tables"


@dataclass(frozen=True, slots=True)
class PlayedS3:
    """`options` are the storage_options that reach it."""

    endpoint: str
    options: Mapping[str, str]

    def url(self, folder: str) -> str:
        return f"s3://{BUCKET}/{folder}"


@contextmanager
def played_s3() -> Iterator[PlayedS3]:
    """An empty S3, for as long as the block."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
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
    try:
        yield PlayedS3(endpoint, options)
    finally:
        server.stop()
