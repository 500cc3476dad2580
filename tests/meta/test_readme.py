"""What the README shows works as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.ottla_server import OttlaServer
from support.processes import run_tool

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
PYTHON_BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


@pytest.fixture
def example_server(ottla_server: OttlaServer) -> OttlaServer:
    """A broker that stands for the README's 127.0.0.1:9092."""
    return ottla_server


def at(server: OttlaServer, text: str) -> str:
    """The text with the address of the running broker."""
    assert "127.0.0.1:9092" in text
    return text.replace("127.0.0.1:9092", server.bootstrap)


@pytest.mark.needs_kcat
def test_the_kcat_lines(example_server: OttlaServer) -> None:
    lines = [line.removeprefix("$ ") for line in README.splitlines() if line.startswith("$ ") and "kcat" in line]
    assert len(lines) == 2
    outputs = [run_tool(["bash", "-c", at(example_server, line)]).stdout for line in lines]
    assert outputs == ["", "hello\n"]


def test_the_client_example(example_server: OttlaServer) -> None:
    example = next(block for block in PYTHON_BLOCKS if "ottla.client" in block)
    told = run_tool([sys.executable, "-c", at(example_server, example)]).stdout.splitlines()
    assert told[1:] == ["greetings 0 0 b'en' b'hello'"]
    shown = next(line for line in README.splitlines() if line.startswith("RecordMetadata("))
    assert without_time(told[0]) == without_time(shown)


def without_time(line: str) -> str:
    """The line with another timestamp."""
    return re.sub(r"timestamp=\d+", "timestamp=…", line)


def test_the_examples_are_python() -> None:
    assert len(PYTHON_BLOCKS) == 2
    for block in PYTHON_BLOCKS:
        compile(block, "README.md", "exec")


def test_a_misspelt_setting_is_reported_with_the_nearest_name(tmp_path: Path) -> None:
    arguments = ["serve", "--port", "0", "--data", str(tmp_path), "-c", "num.partition=4"]
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode != 0
    assert "num.partitions" in done.stderr
    assert "Traceback" not in done.stderr
