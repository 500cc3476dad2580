"""Test brokers by the hundreds in one process, and in parallel runs of pytest: nothing is left of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

PROJECT = Path(__file__).resolve().parents[3]
#: Brokers before anything is counted: modules, caches and the allocator's arenas are filled by then.
WARM_UP = 20
#: Memory that a broker may leave behind on average, in bytes; its state alone is a hundred times as much.
LEFT_PER_BROKER_BYTES = 4096
#: What resident memory may grow by in all: arenas that the allocator keeps.
RESIDENT_GROWTH_BYTES = 16_000_000
WORKERS = 4

pytestmark = [pytest.mark.spec("U1"), pytest.mark.slow]

#: Starts and stops brokers with topics, records and clients, a seeded mix of memory and disk, and reports what is left.
MANY = """
import gc, json, os, random, sys, threading, time, tracemalloc
from pathlib import Path
import psutil
from ottla.client.sync import Consumer
from ottla.testing import Broker

warm_up, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
chosen = random.Random(13)
process = psutil.Process()


def use(number):
    on_disk = chosen.random() < 0.2
    with Broker({"t": chosen.randint(1, 4)}, data=folder / f"data-{number}" if on_disk else None) as broker:
        broker.send("t", "value", partition=0)
        if chosen.random() < 0.3:
            settings = {"group_id": "g", "auto_offset_reset": "earliest"}
            with Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
                consumer.subscribe(["t"])
                assert next(iter(consumer)).value == b"value"
        assert len(broker.records("t")) == 1


def held():
    deadline = time.monotonic() + 60
    while threading.active_count() > 1 and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that has done its work may still be about to end
    gc.collect()
    sockets = process.net_connections("inet")
    return {
        "threads": sorted(each.name for each in threading.enumerate()),
        "descriptors": process.num_fds(),
        "sockets": len([each for each in sockets if each.status in ("LISTEN", "ESTABLISHED")]),
        "children": len(process.children()),
        "resident": process.memory_info().rss,
        "traced": tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0,
        "files": sorted(str(each) for each in folder.iterdir() if not each.name.startswith("data-")),
        "loops": sum(type(each).__name__ == "MovableTimeLoop" for each in gc.get_objects()),
    }


for number in range(warm_up):
    use(number)
if "--trace" in sys.argv:
    tracemalloc.start()
    use(warm_up)
before = held()
for number in range(warm_up + 1, warm_up + 1 + count):
    use(number)
after = held()
largest = tracemalloc.take_snapshot().statistics("lineno")[:20] if tracemalloc.is_tracing() else ()
print(json.dumps({"before": before, "after": {**after, "largest": [str(each) for each in largest]}}))
"""


def _many(count: int, folder: Path, *arguments: str) -> tuple[dict[str, object], dict[str, object]]:
    folder.mkdir()
    command = [sys.executable, "-W", "error", "-c", MANY, str(WARM_UP), str(count), str(folder), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=550, cwd=folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    measured = json.loads(ended.stdout)
    return measured["before"], measured["after"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.long)])
def test_brokers_leave_nothing_behind(count: int, tmp_path: Path) -> None:
    before, after = _many(count, tmp_path / "brokers")
    for what in ("threads", "descriptors", "sockets", "children", "files", "loops"):
        assert after[what] == before[what], what
    assert after["threads"] == ["MainThread"]
    grown = int(str(after["resident"])) - int(str(before["resident"]))
    assert grown < RESIDENT_GROWTH_BYTES


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
def test_brokers_leave_no_memory_behind(count: int, tmp_path: Path) -> None:
    before, after = _many(count, tmp_path / "traced", "--trace")
    assert (after["threads"], after["loops"]) == (["MainThread"], 0)
    grown = int(str(after["traced"])) - int(str(before["traced"]))
    assert grown / count < LEFT_PER_BROKER_BYTES, after["largest"]


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def test_each_worker_of_a_parallel_run_has_a_broker_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_parallel.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "import pytest\n\n\n"
        '@pytest.mark.parametrize("number", range(40))\n'
        "def test_the_topic_is_mine(number, ottla_broker, ottla_topic):\n"
        '    ottla_broker.send("shared-name", str(number))\n'
        "    ottla_broker.send(ottla_topic, str(number))\n"
        "    assert [each.value for each in ottla_broker.records(ottla_topic)] == [str(number).encode()]\n"
        '    assert os.environ["OTTLA_BOOTSTRAP_SERVER"] == ottla_broker.bootstrap_servers\n'
        '    with Path("seen-" + os.environ["PYTEST_XDIST_WORKER"]).open("a") as seen:\n'
        "        seen.write(f\"{ottla_broker.bootstrap_servers} {len(ottla_broker.records('shared-name'))}\\n\")\n"
    )
    plugin = ["-p", "ottla.testing.pytest_plugin", "-p", "xdist", "-n", str(WORKERS)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_parallel.py"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(PROJECT / "src")}
    before = _children()
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=200)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "40 passed" in ended.stdout
    seen = [path.read_text().split() for path in sorted(tmp_path.glob("seen-*"))]
    addresses = [set(words[::2]) for words in seen]
    assert [len(each) for each in addresses] == [1] * len(seen), "a worker has one broker for all its tests"
    assert len(set.union(*addresses)) == len(seen) == WORKERS
    # What one worker puts into a topic the others do not see.
    counts = [[int(count) for count in words[1::2]] for words in seen]
    assert all(each == list(range(1, len(each) + 1)) for each in counts)
    # Servers that other tests share are children of this process, too.
    assert not [each for each in _children() - before if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
