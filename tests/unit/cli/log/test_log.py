"""`ottla log`: options, exit codes, and one line for whatever is wrong."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.log.output import instant, write_table
from ottla.cli.main import app
from ottla.cli.terminal import Terminal
from ottla.env.disk import RealDisk
from ottla.zk.store import LOG_NAME, SNAPSHOT_NAME
from support.storage_logs import append, batch, log_config, new_log

pytestmark = pytest.mark.spec("L3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = new_log(RealDisk(), str(tmp_path), log_config(segment_bytes=2_000))
    for _ in range(20):
        append(log, batch(3, size=50))
    log.close()
    return Path(log.directory)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app(["log", *map(str, arguments)])
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    return int(ended.value.code or 0), told.out, told.err


def test_json_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "dump", folder, "--records", "--format", "json", "--offset", "6", "--until", "7")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["type"] for row in rows] == ["file", "batch", "record"]
    assert rows[2]["key"] == "k0"


def test_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "dump", folder, "-r", "--key", "0x6b31", "--offset", "57")
    assert code == 0
    assert "57-59" in out
    assert "k1" in out
    assert "k2" not in out


def test_directories_of_topics(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "orders" in run(capsys, "dump", folder.parent)[1]
    assert "57-59" in run(capsys, "dump", folder.parent, "--topic", "orders", "--partition", "0")[1]
    code, _, err = run(capsys, "dump", folder.parent, "--topic", "others")
    assert (code, err) == (2, "ottla log: no such topic or partition there\n")


def test_damage_is_exit_code_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    code, out, _ = run(capsys, "dump", path)
    assert code == 1
    assert "DAMAGED at position 0" in out
    assert "3-5" in out, "what lies behind it is shown"


def test_a_partition_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", folder, "--offset", "30", "--time", "@1", "--set", "retention.ms=1")
    assert (code, err) == (0, "")
    assert "offset 30: in 000000000000000000" in out
    assert "time 1970-01-01 00:00:00.001: in 00000000000000000000.log" in out
    assert "retention, retention.ms=1\n  takes 00000000000000000000.log" in out
    _, out, _ = run(capsys, "explain", folder, "--json")
    assert {json.loads(line)["type"] for line in out.splitlines()} == {"log", "segment", "next"}


def test_the_working_directory_explained(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert run(capsys, "explain", ".", "--json") == run(capsys, "explain", folder, "--json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "retention.ms"], "--set retention.ms: expected key=value"),
        (["--set", "retention.msec=1"], "--set: Unknown topic config name: retention.msec"),
        (["--time", "42"], "--time 42: expected 2026"),
    ],
)
def test_explain_refuses_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, _, err = run(capsys, "explain", folder, *arguments)
    assert (code, message in err, err.count("\n")) == (2, True, 1), err


@pytest.mark.parametrize("kind", ["missing", "pipe", "device", "empty", "denied"])
@pytest.mark.parametrize("command", ["dump", "verify", "repair"])
def test_one_line_for_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, command: str
) -> None:
    path = tmp_path / f"{0:020}.log"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "empty":
        path = tmp_path / "nothing"
        path.mkdir()
    elif kind == "denied":
        if os.geteuid() == 0:
            pytest.skip("nothing is denied to root")
        path.write_bytes(b"")
        path.chmod(0)
    code, out, err = run(capsys, command, path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert str(path) in err


def test_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "verify", folder)
    assert (code, out.rstrip().rpartition(": ")[2]) == (0, "intact")
    path = folder / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    code, out, _ = run(capsys, "verify", folder)
    assert code == 1
    assert out.startswith(f"DAMAGE  {path} at position 0, ")
    assert "the records 0 to 2 cannot be read" in out
    code, out, _ = run(capsys, "verify", folder, "--json")
    finding, summary = (json.loads(line) for line in out.splitlines())
    assert (finding["first_offset"], finding["last_offset"], finding["remedy"]) == (0, 2, "cut")
    assert summary["findings"] == {"damage": 1}
    assert run(capsys, "verify", folder.parent, "--topic", "others")[0] == 2


def test_repair(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "repair", folder) == (0, "nothing to repair\n", "")
    path = folder / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    code, _, err = run(capsys, "repair", folder.parent)
    assert (code, err) == (1, "ottla log: nothing was changed: --yes does it\n")
    assert path.read_bytes() == data
    code, out, _ = run(capsys, "repair", folder.parent, "--yes")
    assert code == 0
    assert out.endswith("repaired\n")
    assert "offsets 0 to 2 are missing" in out
    assert (folder / f"{path.name}.0.damaged").exists()
    assert run(capsys, "verify", folder.parent)[0] == 0


def test_a_key_that_is_no_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "dump", folder, "--key", "0xzz")[0] == 2


def test_a_reader_that_has_seen_enough(folder: Path) -> None:
    program = f"{sys.executable} -m ottla log dump -r {folder} {folder} {folder} {folder} {folder} | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {program}"], capture_output=True, text=True, timeout=240)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("redirection", "says"),
    [(">/dev/full", "cannot write the output: No space left on device"), (">&-", "standard output is closed")],
)
@pytest.mark.parametrize("command", ["dump", "verify", "repair"])
@pytest.mark.slow
def test_output_that_cannot_be_written_is_no_damage(folder: Path, command: str, redirection: str, says: str) -> None:
    program = f"{sys.executable} -m ottla log {command} {folder} {redirection}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (2, f"ottla log: {says}\n")


@pytest.mark.parametrize("command", ["dump", "verify", "repair"])
@pytest.mark.parametrize("narrowing", [["--topic", "others"], ["--partition", "7"]])
def test_a_partitions_directory_that_is_not_the_one_that_is_meant(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, narrowing: list[str]
) -> None:
    code, out, err = run(capsys, command, folder, *narrowing)
    assert (code, out) == (2, "")
    assert err.endswith("no such topic or partition there\n")
    assert run(capsys, command, folder, "--topic", "orders", "--partition", "0")[0] == 0


@pytest.mark.parametrize("name", [LOG_NAME, SNAPSHOT_NAME])
def test_the_brokers_coordination_data_are_no_damaged_log(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = folder.parent / name
    path.write_bytes(b"\0\0\0\x0212345[]")
    code, out, _ = run(capsys, "dump", path)
    assert (code, out) == (0, f"{path}: coordination-data, 11 bytes\n")
    code, _, err = run(capsys, "verify", path)
    assert (code, err.count("\n")) == (2, 1)
    assert "coordination metadata, no file of Kafka's" in err
    assert run(capsys, "verify", folder.parent)[0] == 0


def test_tables_go_on_page_by_page() -> None:
    written = io.StringIO()
    rows = ({"type": "thing", "number": number, "name": "x\n"} for number in range(1000))
    write_table(rows, Terminal(written, width=None, colours=False))
    lines = written.getvalue().splitlines()
    assert len(lines) == 1000 + 5
    assert "x\\n" in lines[1]


def test_times() -> None:
    assert instant(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert instant(-1) == "-"
    assert instant(2**62) == str(2**62)
