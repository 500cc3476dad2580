"""`ottla demo` on small files: what it leaves, what it says, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import deltalake
import psutil
import pytest

from support.waiting import wait_until

# The demo itself takes well below a minute here; a busy machine may need more to start Java.
DEMO_TIMEOUT_S = 600
EVENTS = 600


def _demo(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=DEMO_TIMEOUT_S, check=False)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A file of events, not in the order of time, with names of columns that need quotes and a place of their own."""
    lines = [
        json.dumps(
            {
                "id": number,
                "shop": f"shop-{number % 5}",
                "at": 1_700_000_000 + (number * 7_919) % 90_000,
                "Offset": f"{number} m",
                "${env:HOME} in `£`": None if number % 3 else number / 2,
            }
        )
        for number in range(EVENTS)
    ]
    path = tmp_path / "orders.ndjson"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
@pytest.mark.needs_java
@pytest.mark.timeout(DEMO_TIMEOUT_S)
@pytest.mark.spec("D3", "D4")
def test_a_file_of_one_s_own_goes_through_all_of_it(orders: Path, tmp_path: Path) -> None:
    done = _demo("--input", str(orders), "--key", "shop", "--time", "at", "--pace", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    checks = [line for line in done.stdout.splitlines() if line.strip().startswith(("ok ", "FAILED "))]
    assert len(checks) == 6
    assert all(line.strip().startswith("ok ") for line in checks)
    assert f"{EVENTS} records compared" in done.stdout
    for cause in ("anna joined", "ben left", "cleo was not heard of for its session timeout"):
        assert cause in done.stdout, "why the group rebalanced"
    output = tmp_path / "demo-output"
    table = deltalake.DeltaTable(output / "archive").to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == list(range(EVENTS))
    assert set(table["shop"].to_pylist()) == {f"shop-{number}" for number in range(5)}
    assert set(table["Offset"].to_pylist()) == {f"{number} m" for number in range(EVENTS)}
    assert sum(table["__env_HOME__in____"].drop_null().to_pylist()) == sum(range(0, EVENTS, 3)) / 2
    assert {each.name for each in (output / "pipelines").iterdir()} == {"online.toml", "archive.toml", "mirror.toml"}
    assert (output / "report.png").read_bytes().startswith(b"\x89PNG")
    page = (output / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ), "the page needs nothing beside it"


@pytest.mark.slow
@pytest.mark.needs_java
@pytest.mark.timeout(DEMO_TIMEOUT_S)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_running(
    orders: Path, tmp_path: Path, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    arguments = ["--input", str(orders), "--key", "shop", "--time", "at", "--pace", "60"]
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "ottla", "demo", *arguments],
            cwd=tmp_path,
            stdout=output,
            stderr=output,
        )
    wait_until(_said(log, "three queries run", process), "the queries", timeout_s=DEMO_TIMEOUT_S / 2)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 3, "two brokers and Java"
    process.send_signal(how)
    assert _ended(process, log) == 130
    assert "interrupted" in log.read_text()
    assert "Traceback" not in log.read_text()
    psutil.wait_procs(children, timeout=60)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not list((tmp_path / "tmp").glob("ottla-demo-*"))


def _ended(process: subprocess.Popen[bytes], log: Path) -> int:
    """The exit status; a demo that does not end shows the stacks of its threads."""
    try:
        return process.wait(60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait()
        raise AssertionError(f"the demo did not end:\n{log.read_text()}") from None


def _said(log: Path, text: str, process: subprocess.Popen[bytes]) -> Callable[[], bool]:
    def check() -> bool:
        assert process.poll() is None, log.read_text()
        return text in log.read_text()

    return check


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--input", "orders.ndjson"), "--input needs --key COLUMN and --time COLUMN"),
        (("--key", "shop"), "--key and --time belong to --input"),
        (("--input", "none.csv", "--key", "shop", "--time", "at"), "none.csv: no such file"),
        (
            ("--input", "orders.ndjson", "--key", "shops", "--time", "at"),
            "orders.ndjson has no column 'shops' for --key (did you mean shop?); it has id, shop, at, Offset",
        ),
        (("--input", "orders.ndjson", "--key", "id", "--time", "shop"), "orders.ndjson, line 1: 'shop' is 'shop-0'"),
        (
            ("--input", "orders.ndjson", "--key", "shop", "--time", "at", "--output", "taken"),
            "--output taken holds files that are not the demo's",
        ),
        (
            ("--input", "orders.ndjson", "--key", "shop", "--time", "at", "--output", "orders.ndjson"),
            "--output orders.ndjson is a file",
        ),
    ],
)
def test_a_mistake_is_reported_before_anything_starts(
    orders: Path, tmp_path: Path, arguments: Sequence[str], complaint: str
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    done = _demo(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ottla demo: ")
    assert complaint in done.stderr
    assert not done.stdout
    assert (tmp_path / "taken" / "thesis.txt").exists()


@pytest.mark.slow
def test_a_pipeline_s_settings_are_checked_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "mirror.toml").write_text('name = "a"\nkinds = "mirror"\n')
    command = [sys.executable, "-m", "ottla", "pipeline", "run", "mirror.toml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=240, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("ottla pipeline: mirror.toml: unknown key 'kinds' at the top of the file; did")
