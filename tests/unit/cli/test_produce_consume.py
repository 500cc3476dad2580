"""`ottla produce` and `ottla consume` with a broker in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.command import CommandError
from ottla.cli.options import ClusterOptions
from ottla.cli.record_options import client_settings, parse_partitions, parse_position
from ottla.client.sync import Consumer
from ottla.ops.topic_reading import Position, PositionType
from ottla.testing import Broker
from support.command_line import ottla, ottla_at, shown_at

pytestmark = pytest.mark.spec("U2")

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"orders": 3, "lines": 1, "files": 1, "copy": 3, "read": 2, "grouped": 1, "filtered": 1}) as broker:
        yield broker


def shown_by_process(broker: Broker, *arguments: str) -> bytes:
    line = [sys.executable, "-m", "ottla", *arguments, "-b", broker.bootstrap_servers]
    return subprocess.run(line, capture_output=True, check=True, timeout=60).stdout


def read(broker: Broker, topic: str, *arguments: str) -> bytes:
    return shown_at(broker, "consume", topic, "--from", "beginning", "--exit", *arguments)


def test_lines_are_written_and_read(broker: Broker) -> None:
    told = shown_at(broker, "produce", "lines", stdin=b"one\n\ntwo \xff\nlast")
    assert told == b"4 records written to lines: partition 0 offsets 0 to 3\n"
    assert read(broker, "lines") == b"one\n\ntwo \xff\nlast\n"
    assert read(broker, "lines", "-n", "1", "-f", r"%o=%s;") == b"0=one;"
    assert shown_at(broker, "consume", "lines", "-o", "-2", "-e") == b"two \xff\nlast\n"
    assert shown_at(broker, "consume", "lines", "-o", "1", "--until", "2") == b"\n"
    assert shown_at(broker, "consume", "lines", "-o", "end", "-e") == b""


def test_offsets_that_have_yet_to_come(broker: Broker) -> None:
    """A first one is not replaced by an earlier one, and a last one is waited for."""
    made = ottla_at(broker, "topic", "create", "young", "-p", "1")
    assert made.exit_code == 0, made.output
    shown_at(broker, "produce", "young", stdin="0\n1\n")
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(shown_by_process, broker, "consume", "young", "--from", "3", "--until", "5")
        for number in range(2, 6):
            shown_at(broker, "produce", "young", stdin=f"{number}\n")
        assert reading.result(60) == b"3\n4\n"


def test_rows_make_the_same_records_again(broker: Broker, tmp_path: Path) -> None:
    lines = b"a\tone\nb\tNULL\nNULL\t\x00\xff\nc\t"
    row = json.loads(
        shown_at(broker, "produce", "orders", "-K", r"\t", "-Z", "NULL", "-H", "h=v", "--json", stdin=lines)
    )
    assert (row["topic"], row["records"], sum(each["records"] for each in row["partitions"])) == ("orders", 4, 4)
    (tmp_path / "rows.json").write_bytes(rows := read(broker, "orders", "--json"))
    assert len(rows.splitlines()) == 4
    shown_at(broker, "produce", "copy", str(tmp_path / "rows.json"), "--format", "json", "--keep-partition")
    again = read(broker, "copy", "--json")

    def content(text: bytes) -> list[dict[str, Any]]:
        return sorted(({**json.loads(line), "topic": ""} for line in text.splitlines()), key=str)

    assert content(again) == content(rows)
    assert {(each["key"], each.get("value")) for each in content(rows)} == {
        ("a", "one"),
        ("b", None),
        (None, None),
        ("c", ""),
    }


def test_files_are_values(broker: Broker, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(f"{name}\n{name}\n".encode())
    paths = [str(tmp_path / name) for name in ("a", "b")]
    shown_at(broker, "produce", "files", *paths, "--format", "file", "--key", "k", "-p", "0", "--rate", "1000")
    assert read(broker, "files", "-K", "|", "--value-format", "hex") == b"k|610a610a\nk|620a620a\n"


def test_a_refused_line_is_named(broker: Broker) -> None:
    done = ottla_at(
        broker, "produce", "read", "--format", "json", stdin='{"value": "x"}\n\n{"valeu": "y"}\n{"value": "z"}\n'
    )
    assert done.exit_code == 2
    assert done.stderr.startswith("ottla produce: line 3: 'valeu' is not a field of a record")
    assert done.stderr.endswith("; written: 1 record\n")
    done = ottla_at(broker, "produce", "read", "-p", "9", "--timeout", "0.3", stdin="x\n")
    assert (done.exit_code, "Traceback" in done.stderr) == (2, False)
    assert "written: 0 records" in done.stderr
    too_large = "x\n" + "y" * 2_000_000 + "\n"
    done = ottla_at(broker, "produce", "read", stdin=too_large)
    assert done.exit_code == 2
    assert done.stderr.startswith("ottla produce: line 2: a record of 2000")
    assert done.stderr.endswith("; written: 1 record\n")
    assert read(broker, "read") == b"x\nx\n"


def test_a_partition_that_does_not_move_ends_it(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its leader does not answer, or its topic was made again."""
    monkeypatch.setattr(Consumer, "poll", lambda _consumer, _timeout_ms: [])
    done = ottla_at(broker, "consume", "lines", "--from", "beginning", "--exit", "--timeout", "0.2")
    assert done.exit_code == 2
    assert "nothing was read for 0.2 s, and these are not at their end: lines-0 at offset 0 of 4" in done.stderr


def test_a_record_that_the_broker_refuses_is_named(broker: Broker) -> None:
    made = ottla_at(broker, "topic", "create", "small", "-p", "1", "-c", "max.message.bytes=1000")
    assert made.exit_code == 0, made.output
    lines = ["x" * 10, "y" * 5_000, "z" * 10]
    done = ottla_at(broker, "produce", "small", "-c", "batch.size=1", stdin="\n".join(lines))
    assert done.exit_code == 2
    assert done.stderr.startswith("ottla produce: line 2: 1 of ")
    assert done.stderr.endswith("; written: 2 records\n")
    assert read(broker, "small") == f"{lines[0]}\n{lines[2]}\n".encode()


def test_a_refused_record_among_several_partitions_is_not_mistaken_for_another(broker: Broker) -> None:
    made = ottla_at(broker, "topic", "create", "keyed", "-p", "8", "-c", "max.message.bytes=1000")
    assert made.exit_code == 0, made.output
    lines = [f"k{number}:v" for number in range(40)]
    lines[20] = f"k20:{'y' * 5_000}"
    done = ottla_at(broker, "produce", "keyed", "-K", ":", stdin="\n".join(lines))
    assert done.exit_code == 2
    assert done.stderr.startswith("ottla produce: a record from line 1 to line 39: ")
    lines[20] = f"k20:{'y' * 2_000_000}"
    done = ottla_at(broker, "produce", "keyed", "-K", ":", stdin="\n".join(lines))
    assert done.exit_code == 2
    assert done.stderr.startswith("ottla produce: line 21: a record of 2000")


def test_a_refused_record_is_known_before_more_input_comes(broker: Broker) -> None:
    made = ottla_at(broker, "topic", "create", "waiting", "-p", "1", "-c", "max.message.bytes=1000")
    assert made.exit_code == 0, made.output
    line = [sys.executable, "-m", "ottla", "produce", "waiting", "-b", broker.bootstrap_servers]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stderr is not None
        program.stdin.write(b"x" * 5_000 + b"\n")
        program.stdin.flush()
        assert program.wait(60) == 2
        assert program.stderr.read().startswith(b"ottla produce: line 1: 1 of 1 records were not acknowledged")


def test_a_group_commits_what_was_written_out(broker: Broker) -> None:
    shown_at(broker, "produce", "grouped", stdin="1\n2\n3\n4\n")
    of_group = ("consume", "grouped", "-g", "readers", "--from-beginning", "-n", "2")
    assert shown_at(broker, *of_group) == b"1\n2\n"
    assert shown_at(broker, *of_group) == b"3\n4\n"
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="readers") as consumer:
        (partition,) = consumer.partitions_for("grouped")
        committed = consumer.committed([partition])[partition]
    assert committed is not None
    assert committed.offset == 4


def test_records_are_filtered(broker: Broker) -> None:
    """A group commits what was passed over, too, and no more than what it has read."""
    shown_at(broker, "produce", "filtered", "-p", "0", stdin='{"n": 1}\ntext\n{"n": 2}\n{"n": 3}\n{"n": 4}\n')
    assert read(broker, "filtered", "--filter", "value.n >= `2` && offset < `4`") == b'{"n": 2}\n{"n": 3}\n'
    done = ottla_at(broker, "consume", "filtered", "--from", "1", "-e", "--filter", "ends_with(value, 't')")
    assert done.stdout_bytes == b"text\n"
    assert done.stderr.startswith(
        "ottla consume: --filter cannot be computed of filtered-0 offset 2 and perhaps others"
    )
    of_group = ("consume", "filtered", "-g", "filterers", "--from-beginning", "-n", "1", "-f", "%o", "--filter")
    assert shown_at(broker, *of_group, "value.n > `1`") == b"2"
    assert shown_at(broker, *of_group, "value.n > `3`") == b"4"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("consume orders --filter value.n>3", "--filter value.n>3: character 9, '3': from there it is not JMESPath"),
        ("consume nope -e", "topic nope does not exist"),
        ("consume orders -p 7 -e", "topic orders has no partition 7; its partitions are 0 to 2"),
        ("consume orders -p x", "--partition x: expected numbers with commas between"),
        ("consume orders --from yesterday", "--from yesterday: expected beginning, end, an offset"),
        ("consume orders -e --until 5", "--until and --exit say the same thing"),
        ("consume orders --from-beginning -o end", "--from and --from-beginning say the same thing"),
        ("consume orders --json -f %s", "--json shows all fields"),
        ("consume orders -f %s -K :", "--template and --key-separator are both there"),
        ("consume orders -f %x", "%x is not a field of a record"),
        ("consume orders -g g -e", "--group reads the partitions that the group assigns"),
        ("consume orders -g g -o 5", "a group begins where it committed"),
        ("consume orders -c isolation.levle=x", "did you mean isolation.level"),
        ("consume orders --properties /nowhere", "--properties /nowhere: No such file"),
        ("consume orders -Z -e", "--null -e takes a text; write -Z NULL"),
        ("consume orders -c group.id=g", "group.id is not set by -c or --properties here; --group NAME"),
        ("consume orders --properties BAD", "BAD: "),
        ("produce orders /nowhere", "/nowhere: No such file or directory"),
        ("produce orders --keep-partition", "--keep-partition goes with --format json"),
        ("produce orders --format json -K :", "--key-separator goes with --format text"),
        ("produce orders --format json -Z N", "--null and --value-format have no effect with --format json"),
        ("produce orders -K : -k x", "--key and --key-separator are both there"),
        ("produce orders -k 0g --key-format hex", "'0g' is not hexadecimal"),
        ("produce orders -H x", "--header x: expected name=value"),
        ("produce orders -K \\q", "is not an escape"),
    ],
)
def test_mistakes(broker: Broker, tmp_path: Path, arguments: str, message: str) -> None:
    (tmp_path / "BAD").write_text("a=\\u12\n")
    done = ottla_at(broker, *arguments.replace("BAD", str(tmp_path / "BAD")).split(), stdin="")
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_places() -> None:
    def place(text: str) -> Position:
        return parse_position("--from", text, NOW_MS)

    assert place("Earliest") == place("beginning") == Position(PositionType.BEGINNING)
    assert place("latest") == place("end") == Position(PositionType.END)
    assert place("42") == Position(PositionType.OFFSET, 42)
    assert place("-10") == Position(PositionType.LAST, 10)
    assert place("@1700") == Position(PositionType.TIMESTAMP, 1700)
    assert place("1h") == Position(PositionType.TIMESTAMP, NOW_MS - 3_600_000)
    assert place("999999999d") == Position(PositionType.TIMESTAMP, 0)
    assert place("2026-11-21T10:00:00+01:00") == Position(PositionType.TIMESTAMP, 1_795_251_600_000)
    for wrong in ("", "-", "@", "1x", "99999999999999999999", "-1-1", "١"):
        with pytest.raises(CommandError, match="expected beginning"):
            place(wrong)


def test_settings_take_precedence(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("client.id=file\nlinger.ms=5\n")
    settings = client_settings(ClusterOptions("h:1", 2.0), ["client.id=option"], str(tmp_path / "client.properties"))
    assert settings["client.id"] == "option"
    assert (settings["linger.ms"], settings["bootstrap.servers"], settings["default.api.timeout.ms"]) == (
        "5",
        "h:1",
        "2000",
    )
    (tmp_path / "client.properties").write_text("bootstrap.servers=file:1\n")
    assert (
        client_settings(ClusterOptions("file:1", 2.0), [], str(tmp_path / "client.properties"))["bootstrap.servers"]
        == "file:1"
    )
    unchosen = ClusterOptions("default:1", 2.0, is_chosen=False)
    assert client_settings(unchosen, [], str(tmp_path / "client.properties"))["bootstrap.servers"] == "file:1"
    with pytest.raises(CommandError, match=r"names bootstrap\.servers=file:1, and --bootstrap-server is other:1"):
        client_settings(ClusterOptions("other:1", 2.0), [], str(tmp_path / "client.properties"))
    assert parse_partitions("0, 3,0") == [0, 3]
    assert parse_partitions(None) is None


def test_a_properties_file_names_the_cluster_where_no_option_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVER", raising=False)
    with Broker({"t": 1}, sasl={"alice": "secret"}) as broker:
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={each}\n" for name, each in broker.client_settings().items()))
        done = ottla("produce", "t", "--properties", str(file), stdin="one\n")
        assert done.exit_code == 0, done.output
        done = ottla("consume", "t", "-e", "--from", "beginning", "--properties", str(file))
        assert done.stdout == "one\n"
        done = ottla("consume", "t", "-e", "--properties", str(file), "-b", "127.0.0.1:1")
        assert done.exit_code == 2
        assert "and --bootstrap-server is 127.0.0.1:1" in done.output
