"""Values decoded in the tasks of a query: JSON, Avro with a schema registry, Protobuf; a bad one in each."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

from ottla.records.record import Record
from support.ottla_server import OttlaServer
from support.played_registry import PlayedRegistry

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

#: Versions of a schema, by their ids in the registry.
SCHEMAS = {
    7: {"type": "record", "name": "E", "fields": [{"name": "id", "type": "long"}]},
    8: {
        "type": "record",
        "name": "E",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "none"}],
    },
}


def read(spark: SparkSession, broker: OttlaServer, topic: str, **options: str) -> list[Row]:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return sorted(reader.options(**options).load().collect(), key=lambda row: row.offset)


@pytest.mark.spec("D1")
def test_json(spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, fill) -> None:
    values = [b'{"id":1,"device":{"os":"a"},"tags":["x"],"m":{"k":1}}', b'{"id":"x","tags":["kept"]}', b"{", None]
    fill(shared_ottla_server, unique, [[Record(0, 1, b"key", value) for value in values]])
    ddl = "id BIGINT, device STRUCT<os: STRING>, tags ARRAY<STRING>, m MAP<STRING, INT>"
    rows = read(spark, shared_ottla_server, unique, valueFormat="json", valueSchema=ddl)
    assert "value" not in rows[0]
    assert (rows[0].key, rows[0].id, rows[0].device.os, rows[0].tags, rows[0].m) == (b"key", 1, "a", ["x"], {"k": 1})
    assert [row.id for row in rows] == [1, None, None, None]
    assert [row.tags for row in rows[1:]] == [["kept"], None, None]
    assert [row._bad_value for row in rows] == [None, values[1], values[2], None]
    assert rows[1]._bad_reason == 'column id: int64 is expected, not "x"'


@pytest.mark.spec("D1")
def test_avro_of_a_schema_registry(spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, fill) -> None:
    values = []
    for number in range(6):
        body = io.BytesIO()
        schema_id = 7 + number % 2
        fastavro.schemaless_writer(body, SCHEMAS[schema_id], {"id": number, "note": f"note {number}"})
        values.append(b"\x00" + schema_id.to_bytes(4, "big") + body.getvalue())
    values.append(b"no frame")
    fill(shared_ottla_server, unique, [[Record(0, 1, None, value) for value in values]])
    with PlayedRegistry({schema_id: json.dumps(schema) for schema_id, schema in SCHEMAS.items()}) as registry:
        options = {"valueFormat": "avro", "schemaRegistry": registry.address, "valueSchemaId": "8"}
        rows = read(spark, shared_ottla_server, unique, valueColumn="value", **options)
    assert [row.value.id for row in rows] == [0, 1, 2, 3, 4, 5, None]
    assert [row.value.note for row in rows[:3]] == ["none", "note 1", "none"]
    assert [row._bad_value for row in rows] == [None] * 6 + [b"no frame"]


@pytest.mark.spec("D1")
def test_protobuf(spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, fill, tmp_path: Path) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    wrappers_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    (tmp_path / "wrappers.desc").write_bytes(files.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(files.file[0])
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.UInt64Value"))
    fill(
        shared_ottla_server,
        unique,
        [[Record(0, 1, None, value) for value in (made(value=2**64 - 1).SerializeToString(), b"\xff")]],
    )
    rows = read(
        spark,
        shared_ottla_server,
        unique,
        valueFormat="protobuf",
        valueDescriptor=str(tmp_path / "wrappers.desc"),
        valueMessage="google.protobuf.UInt64Value",
        valueColumn="decoded",
    )
    assert int(rows[0].decoded.value) == 2**64 - 1
    assert rows[1]._bad_reason.startswith("not a google.protobuf.UInt64Value: ")
