"""Avro in `ottla consume`, `produce` and `search`, with a broker and a played registry in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.sync import Consumer, Producer
from ottla.testing import Broker
from support.command_line import ottla, ottla_at, shown_at
from support.played_registry import PlayedRegistry

pytestmark = pytest.mark.spec("U2")

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "city", "type": "string"}, {"name": "pears", "type": ["null", "long"]}],
    }
)


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + body


OSLO = b"\x08Oslo\x02\x04"
ROME = b"\x08Rome\x00"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    topics = {"orders": 1, "plain": 1, "mixed": 1, "many": 1, "written": 1, "filed": 1, "again": 1, "unframed": 1}
    with Broker(topics) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", framed(7, OSLO), framed(8, b"\x08anna"))
        producer.send("orders", framed(7, ROME), framed(8, b"\x06ben"))
        producer.send("orders", None, framed(8, b"\x06ben"))
        producer.send("plain", OSLO)
        producer.send("plain", framed(7, OSLO))
        for value in (framed(7, OSLO), b"plain text", framed(9, OSLO), framed(7, OSLO[:-1]), framed(7, ROME)):
            producer.send("mixed", value)
        for _ in range(15):
            producer.send("many", b"text")
        producer.flush()
        yield broker


@pytest.fixture(scope="module")
def registry() -> Iterator[PlayedRegistry]:
    with PlayedRegistry({7: ORDER, 8: '"string"'}) as played:
        yield played


@pytest.fixture(autouse=True)
def named(registry: PlayedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.instead = None
    registry.authorizations.clear()
    monkeypatch.setenv("OTTLA_SCHEMA_REGISTRY", registry.address)
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY_LOGIN", raising=False)


def read(topic: str, *arguments: str) -> tuple[str, ...]:
    return ("consume", topic, "--from", "beginning", "--exit", *arguments)


AVRO = ("--value-format", "avro")
BOTH = ("--key-format", "avro", *AVRO)


def test_values_are_json_and_texts_are_texts(broker: Broker) -> None:
    assert shown_at(broker, *read("orders", *BOTH, "-K", " ", "-Z", "NULL")).decode().splitlines() == [
        'anna {"city":"Oslo","pears":2}',
        'ben {"city":"Rome","pears":null}',
        "ben NULL",
    ]
    rows = [json.loads(line) for line in shown_at(broker, *read("orders", *BOTH, "--json")).splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [
        ("anna", {"city": "Oslo", "pears": 2}),
        ("ben", {"city": "Rome", "pears": None}),
        ("ben", None),
    ]
    csv = shown_at(broker, *read("orders", *BOTH, "--format", "csv", "--columns", "key,city,pears", "-n", "2"))
    assert csv == b"key,city,pears\nanna,Oslo,2\nben,Rome,null\n"


def test_filters_see_what_was_decoded(broker: Broker) -> None:
    found = shown_at(broker, *read("orders", *BOTH, "--filter", "key == 'anna' && value.pears > `1`", "-f", "%o %S\\n"))
    assert found == b"0 12\n"


def test_a_file_has_the_schema_of_values_without_framing(broker: Broker, tmp_path: Path) -> None:
    (file := tmp_path / "order.avsc").write_text(ORDER)
    done = ottla_at(broker, *read("plain", *AVRO, "--value-schema", str(file), "-f", "%s;"))
    assert done.stdout_bytes == b'{"city":"Oslo","pears":2};' + framed(7, OSLO) + b";"
    assert done.stderr == (
        "ottla consume: plain-0 offset 1: its value cannot be decoded, and shown as it is: not Avro of its schema: "
        "10 bytes are left behind its end; it begins with a byte 0: if a schema registry has its schema, name the "
        "registry\n"
    )


def test_what_cannot_be_decoded_is_shown_as_it_is_and_named(broker: Broker) -> None:
    done = ottla_at(broker, *read("mixed", *AVRO, "-f", "%s;"))
    values = [b'{"city":"Oslo","pears":2}', b"plain text", framed(9, OSLO), framed(7, OSLO[:-1])]
    assert (done.exit_code, done.stdout_bytes) == (0, b";".join([*values, b'{"city":"Rome","pears":null};']))
    places = [line.partition("cannot be decoded, and shown as it is: ")[::2] for line in done.stderr.splitlines()]
    assert places == [
        (
            "ottla consume: mixed-0 offset 1: its value ",
            "no framing of a schema registry: it does not begin with a byte 0 and a schema id",
        ),
        ("ottla consume: mixed-0 offset 2: its value ", "schema 9 is not in the schema registry"),
        ("ottla consume: mixed-0 offset 3: its value ", "not Avro of its schema: it ends too early"),
    ]
    first = ottla_at(broker, *read("mixed", *AVRO, "-n", "1"))
    assert (first.exit_code, first.stderr) == (0, "")


def test_only_some_are_named(broker: Broker) -> None:
    done = ottla_at(broker, *read("many", *AVRO))
    assert len(done.stderr.splitlines()) == 11
    assert done.stderr.endswith("these are 10; further ones are shown as they are, and not reported\n")


def test_strict_ends_before_the_first(broker: Broker) -> None:
    of_group = ("consume", "mixed", "-g", "strict", "--from-beginning", *AVRO, "--strict", "-f", "%o;")
    done = ottla_at(broker, *of_group)
    assert (done.exit_code, done.stdout) == (1, "0;")
    assert done.stderr.startswith("ottla consume: mixed-0 offset 1: its value cannot be decoded: no framing")
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="strict") as consumer:
        (partition,) = consumer.partitions_for("mixed")
        committed = consumer.committed([partition])[partition]
    assert committed is not None
    assert committed.offset == 1


def test_the_login_is_of_the_environment_or_of_the_named_cluster(
    broker: Broker, registry: PlayedRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_SCHEMA_REGISTRY_LOGIN", "reader:p@ss")
    shown_at(broker, *read("orders", *AVRO, "--schema-registry", registry.address))
    assert registry.authorizations == ["Basic cmVhZGVyOnBAc3M="]
    (file := tmp_path / "clusters.toml").write_text(
        f'[here]\nbootstrap.servers = "{broker.bootstrap_servers}"\nschema.registry.url = "{registry.address}"\n'
        'schema.registry.basic.auth.user.info = "${env:WHO}"\n'
    )
    for name, value in {"OTTLA_CLUSTERS_FILE": str(file), "WHO": "me:x", "OTTLA_SCHEMA_REGISTRY": "http://no"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVER", raising=False)
    done = ottla(*read("orders", *AVRO, "-n", "1", "--cluster", "here"))
    assert (done.stdout, done.stderr) == ('{"city":"Oslo","pears":2}\n', "")
    assert registry.authorizations[1:] == ["Basic bWU6eA=="]
    assert ottla("topic", "list", "--cluster", "here").exit_code == 0


def test_a_search_looks_into_what_was_decoded(broker: Broker) -> None:
    done = ottla_at(broker, "search", "orders", '"pears":2', *BOTH)
    assert (done.exit_code, done.stdout) == (0, '0 0 anna {"city":"Oslo","pears":2}\n')
    done = ottla_at(broker, "search", "mixed", "plain", *AVRO)
    assert (done.exit_code, done.stdout) == (0, "0 1 null plain text\n")
    assert "mixed-0 offset 1: its value cannot be decoded, and shown as it is: no framing" in done.stderr
    done = ottla_at(broker, "search", "orders", "-r", "^ben$", "--value-format", "avro", "--key-format", "avro")
    assert done.stderr == "ottla search: 2 records found, 3 of 3 offsets (100%) read\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--value-format avro", "--value-format avro needs the schema: --schema-registry URL where values have"),
        ("--value-schema x", "--value-schema goes with --value-format avro"),
        ("--key-format avro --key-schema nofile", "--key-schema nofile: No such file or directory"),
        ("--value-format avro --value-schema {file}", "--value-schema {file}: not JSON"),
        ("--schema-registry http://h", "--schema-registry goes with --key-format and --value-format avro"),
        ("--strict", "--strict goes with --key-format and --value-format avro"),
        (
            "--value-format avro --schema-registry http://me:secret@h",
            "--schema-registry: the address has a login, which others could read there; leave user:password@ out",
        ),
        ("--value-format avro --schema-registry http://h --value-schema f", "--schema-registry has no effect, since"),
        (f"--value-format avro --schema-registry http://{'h' * 70}.x", f"at http://{'h' * 70}.x gives no schema 7: "),
        ("--value-format avro --schema-registry h:8081", "--schema-registry h:8081: expected the address of a schema"),
        ("--value-format avro --schema-registry http://h:0", "expected the address of a schema registry"),
        ("--value-format avro --schema-registry http://h:x", "expected the address of a schema registry"),
        (
            "--value-format avro --schema-registry http://127.0.0.1:1",
            "the schema registry at http://127.0.0.1:1 gives no schema 7: [Errno 111] Connection refused; "
            "check --schema-registry, and that the registry runs",
        ),
        ("--value-format avro --to x.parquet", "--to writes values as bytes, not by --value-format avro; leave that"),
    ],
)
def test_mistakes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: str, message: str
) -> None:
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY")
    (file := tmp_path / "f.avsc").write_text("{")
    done = ottla_at(broker, *read("orders", *arguments.replace("{file}", str(file)).split()))
    assert (done.exit_code, done.stdout) == (2, "")
    assert message.replace("{file}", str(file)) in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        ((401, b"{}"), "the answer is 401 Unauthorized; OTTLA_SCHEMA_REGISTRY_LOGIN is its user:password"),
        ((200, b"<html>"), "is not a schema registry"),
    ],
)
def test_a_registry_that_refuses(broker: Broker, registry: PlayedRegistry, instead: Any, message: str) -> None:
    registry.instead = instead
    done = ottla_at(broker, *read("orders", *AVRO))
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_json_is_written_by_the_newest_schema(broker: Broker, registry: PlayedRegistry) -> None:
    registry.versions |= {"written-value": [8, 7], "written-key": [8]}
    lines = 'anna:{"city":"Oslo","pears":2}\n"b:{":{"city":"Rome","pears":null}\ncarl:NULL\n'
    told = shown_at(broker, "produce", "written", *BOTH, "-K", ":", "-Z", "NULL", stdin=lines.replace('"b:{"', '"b"'))
    assert told == b"3 records written to written: partition 0 offsets 0 to 2\n"
    raw = shown_at(broker, *read("written", "-f", "%k|%s;", "--key-format", "hex", "--value-format", "hex"))
    values = [framed(7, OSLO), framed(7, ROME)]
    keys = [framed(8, b"\x08anna"), framed(8, b"\x02b"), framed(8, b"\x08carl")]
    assert raw.decode() == "".join(
        f"{key.hex()}|{value};" for key, value in zip(keys, [*(each.hex() for each in values), "null"], strict=True)
    )


def test_what_is_saved_as_json_makes_the_same_records(broker: Broker, registry: PlayedRegistry, tmp_path: Path) -> None:
    registry.versions |= {"again-value": [7], "again-key": [8]}
    (saved := tmp_path / "orders.json").write_bytes(shown_at(broker, *read("orders", *BOTH, "--json")))
    shown_at(broker, "produce", "again", "--format", "json", *BOTH, str(saved))
    (sheet := tmp_path / "orders.csv").write_text("key,city,pears\nemil,Oslo,2\n")
    shown_at(broker, "produce", "again", "--format", "csv", "--typed", *BOTH, str(sheet))
    (whole := tmp_path / "order").write_text('{\n"city": "Rome", "pears": {"long": 3}}')
    shown_at(broker, "produce", "again", "--format", "file", "-k", "emil", *BOTH, str(whole))
    raw = ("-f", "%k %s\n")
    again = shown_at(broker, *read("again", *raw))
    assert again == shown_at(broker, *read("orders", *raw)) + b"".join(
        framed(8, b"\x08emil") + b" " + value + b"\n" for value in (framed(7, OSLO), framed(7, b"\x08Rome\x02\x06"))
    )


def test_a_file_is_registered_only_where_that_is_wanted(
    broker: Broker, registry: PlayedRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "n.avsc").write_text('{"type":"record","name":"N","fields":[{"name":"n","type":"long"}]}')
    line = ("produce", "filed", *AVRO, "--value-schema", str(file))
    done = ottla_at(broker, *line, stdin='{"n":1}\n')
    assert (done.exit_code, done.stderr) == (
        2,
        f"ottla produce: --value-schema {file}: subject filed-value of the registry does not have this schema; "
        "--register-schema registers it there\n",
    )
    shown_at(broker, *line, "--register-schema", stdin='{"n":1}\n')
    shown_at(broker, *line, stdin='{"n":2}\n')
    (number,) = registry.versions["filed-value"]
    assert shown_at(broker, *read("filed", "-f", "%s")) == framed(number, b"\x02") + framed(number, b"\x04")
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY")
    shown_at(broker, "produce", "unframed", *line[2:], stdin='{"n":1}\n')
    assert shown_at(broker, *read("unframed", "-f", "%s")) == b"\x02"


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (
            "",
            '{"city":"Oslo","pears":"two"}',
            'line 1: value: pears is "two"; the schema has null or a whole number of',
        ),
        (
            "",
            '{"town":"Oslo"}',
            "line 1: value: town is not a field of Order, which has city, pears; written: 0 records",
        ),
        ("", "Oslo", "line 1: value: not JSON: Expecting value: line 1 column 1 (char 0); written: 0 records"),
        ("--format json", '{"value":{"city":5}}', "line 1: value: city is 5; the schema has a text there"),
        (
            "--key-format avro",
            "",
            "the schema registry has no subject refused-key; --key-schema FILE --register-schema",
        ),
        ("--register-schema", "", "--register-schema registers the schema of --key-schema or --value-schema; name its"),
        ("--value-schema nofile", "", "--value-schema nofile: No such file or directory"),
        ("--value-schema {file}", "", "--value-schema {file}: not JSON"),
    ],
)
def test_what_is_not_written(
    broker: Broker, registry: PlayedRegistry, tmp_path: Path, arguments: str, stdin: str, message: str
) -> None:
    registry.versions["refused-value"] = [7]
    (file := tmp_path / "f.avsc").write_text("{")
    words = arguments.replace("{file}", str(file)).split()
    done = ottla_at(broker, "produce", "refused", *AVRO, *words, stdin=stdin)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message.replace("{file}", str(file)) in done.stderr


@pytest.mark.parametrize(
    ("how", "content"),
    [
        ("json", '{"key":"5","value":"null"}\n{"key":"x","value":"5"}\n{"key":"\\"q\\"","value":null}\n'),
        ("csv", 'key,value\n5,null\nx,5\n"""q""",-\n'),
    ],
    ids=["json", "csv"],
)
def test_a_text_of_a_row_stays_a_text(
    broker: Broker, tmp_path: Path, how: str, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY")
    broker.create_topic(f"texts-{how}")
    (rows := tmp_path / "rows").write_text(content)
    (text := tmp_path / "text.avsc").write_text('["null","long","string"]')
    options = ("--key-format", "avro", "--value-format", "avro", "--key-schema", str(text), "--value-schema", str(text))
    null = ("--null", "-") if how == "csv" else ()
    shown_at(broker, "produce", f"texts-{how}", "--format", how, *options, *null, str(rows))
    found = [(each.key, each.value) for each in broker.records(f"texts-{how}")]
    assert found == [(b"\x04\x025", b"\x04\x08null"), (b"\x04\x02x", b"\x04\x025"), (b'\x04\x06"q"', None)]
