"""Executors whose ottla is another version than the driver's, or that have none: what the user is told."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.records.record import Record
from support.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from support.brokers import RunningBroker

JOB = Path(__file__).parent / "jobs" / "refused.py"
PACKAGE = Path(ottla.__file__).parent
#: Runs a command with other contents of a folder, as on a machine with another installation.
WITH_OTHER_CONTENTS = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh"]


def can_mount() -> bool:
    """Whether this user may have mounts of a process's own."""
    try:
        return subprocess.run([*WITH_OTHER_CONTENTS, "/tmp", "/tmp", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = [
    pytest.mark.spec("D1", "D5"),
    pytest.mark.long,
    pytest.mark.skipif(not can_mount(), reason="needs mounts of its own: run as root where `unshare --mount` works"),
]


@pytest.mark.parametrize("installed", ["another version", "none"])
def test_executors_with_another_installation(
    shared_ottla_server: RunningBroker, unique: str, tmp_path: Path, fill, installed: str
) -> None:
    """Reading, reading from segment files and writing end with one sentence each."""
    fill(shared_ottla_server, unique, [[Record(0, 1, None, b"v")]])
    other = tmp_path / "ottla"
    other.mkdir()
    # Whatever else is installed on this machine is not found either.
    (other / "__init__.py").write_text("raise ModuleNotFoundError('No module named ottla', name='ottla')")
    sentence = f"the driver has ottla {ottla.__version__} and this executor has none: install 'ottla[spark-source]'"
    if installed == "another version":
        shutil.copytree(PACKAGE, other, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        marker = other / "__init__.py"
        marker.write_text(marker.read_text().replace(f'"{ottla.__version__}"', '"0.0.9"'))
        sentence = f"the driver has ottla {ottla.__version__} and this executor has ottla 0.0.9: install the same"
    with SparkCluster(tmp_path / "cluster", 1, [*WITH_OTHER_CONTENTS, str(other), str(PACKAGE)]) as cluster:
        cluster.wait_until_ready()
        arguments = (shared_ottla_server.bootstrap, unique, str(shared_ottla_server.log_dir))
        done = cluster.submit(JOB, *arguments, conf={"spark.task.maxFailures": "1"})
    found = dict(re.findall(r"<(read|segments|write)>(.*?)</\1>", done.stdout, re.DOTALL))
    assert set(found) == {"read", "segments", "write"}
    for name, text in found.items():
        assert sentence in text, (name, text)
        assert "Traceback" not in text
        assert "File " not in text
