"""`ottla rebalance`: groups from files, tables, pictures, examples, and the messages about mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from ottla.assign.registry import BUILT_IN
from ottla.cli.main import app
from ottla.rebalance import picture
from ottla.rebalance.designs import timeline
from ottla.rebalance.examples import EXAMPLES, play
from ottla.rebalance.group_source import group_of, read_file, to_json

GROUP: dict[str, Any] = {
    "topics": {"orders": 4, "returns": {"partitions": 2, "racks": [["a"], ["a", "b"]]}},
    "members": {
        "c1": {"owned": {"orders": [0, 1], "returns": [0]}, "rack": "a"},
        "c2": {"topics": ["orders", "returns"], "owned": {"orders": [2, 3], "returns": [1]}, "instance": "i2"},
    },
}


@pytest.fixture
def group_file(tmp_path: Path) -> Path:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUP))
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rebalance", *arguments])


def simulated(*arguments: str) -> list[dict[str, Any]]:
    done = run("simulate", "--json", *arguments)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_assignors_side_by_side(group_file: Path) -> None:
    done = run("simulate", "-f", str(group_file), "--add", "1")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["assignor", "protocol", "rebalances", "kept"]
    assert [line.split()[0] for line in lines[1 : 1 + len(BUILT_IN)]] == list(BUILT_IN)
    assert any("new-1" in line and "▣" in line for line in lines)
    assert max(map(len, lines)) <= 120


def test_a_pipe_gets_names_and_partitions_whole(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    names = [f"a-consumer-with-a-rather-long-name-and-an-id-{number:036}" for number in range(60)]
    path.write_text(json.dumps({"topics": {f"topic-{number:030}": 2 for number in range(90)}, "members": names}))
    done = run("simulate", "-f", str(path), "-a", "roundrobin")
    assert done.exit_code == 0, done.output
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("  a-consumer")}
    assert list(rows) == names
    assert "…" not in done.stdout
    assert all(line.count("topic-") == 3 for line in rows.values())


@pytest.mark.spec("A1")
def test_every_move_is_listed(group_file: Path) -> None:
    (told,) = simulated("-f", str(group_file), "-a", "range", "--remove", "c2", "--partitions", "orders=5")
    assert told["after"] == {"c1": {"orders": [0, 1, 2, 3, 4], "returns": [0, 1]}}
    assert (told["kept"], told["moved"], told["taken_over"], told["first_owned"]) == (3, 0, 3, 1)
    assert {"topic": "orders", "partition": 4, "from": None, "to": "c1"} in told["moves"]
    assert {"topic": "orders", "partition": 2, "from": "c2", "to": "c1"} in told["moves"]


def test_assignors_by_the_names_of_java_and_of_ones_own(group_file: Path) -> None:
    names = ["org.apache.kafka.clients.consumer.RangeAssignor", "ottla.assign.roundrobin.RoundRobinAssignor"]
    told = simulated("-f", str(group_file), "-a", names[0], "-a", names[1])
    assert [one["assignor"] for one in told] == ["range", "roundrobin"]


def test_a_group_is_saved_and_read_again(group_file: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    assert run("simulate", "-f", str(group_file), "--save", str(saved)).exit_code == 0
    assert read_file(saved) == read_file(group_file)
    assert group_of(to_json(read_file(saved))) == read_file(group_file)


def test_a_picture(group_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "group.svg"
    assert run("simulate", "-f", str(group_file), "--add", "1", "--picture", str(path)).exit_code == 0
    drawn = ElementTree.parse(path).getroot()
    titles = [title.text or "" for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 2 * 6 * len(BUILT_IN), "six partitions before and after"
    assert any(", from c" in title for title in titles)


def test_a_picture_has_a_limit(monkeypatch: pytest.MonkeyPatch, group_file: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(picture, "MOST_SQUARES", 10)
    done = run("simulate", "-f", str(group_file), "--picture", str(tmp_path / "group.svg"))
    assert done.exit_code == 2
    assert "choose one assignor, or a smaller group" in done.stderr


@pytest.mark.parametrize("text", [b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_bytes(text)
    done = run("simulate", "-f", str(path))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"ottla rebalance: {path} is not JSON: ")


MISTAKES: list[tuple[list[str], str]] = [
    ([], "say which group"),
    (["-g", "x", "-f", "y"], "say which group"),
    (["-f", "/nowhere/at.all"], "cannot be read: No such file"),
    (["-f", "FILE", "--remove", "c"], "--remove c: 2 members begin so: c1, c2"),
    (["-f", "FILE", "--remove", "x"], "--remove x: no such member; members are c1, c2"),
    (["-f", "FILE", "--partitions", "orders"], "--partitions 'orders' is not of the form TOPIC=N"),
    (["-f", "FILE", "--partitions", "orders=x"], "is not of the form TOPIC=N"),
    (["-f", "FILE", "--partitions", "orders=1"], "topic orders has 4 partitions and cannot have fewer (1)"),
    (["-f", "FILE", "-a", "rang"], "did you mean range?"),
    (["-f", "FILE", "--remove", "c1", "--remove", "c2"], "no member would be left in the group"),
    (["-f", "FILE", "--save", "/nowhere/at.all"], "--save: /nowhere/at.all cannot be written"),
    (["-f", "FILE", "--picture", "/nowhere/at.all"], "--picture: /nowhere/at.all cannot be written"),
    (["-g", "x", "-b", "127.0.0.1"], "is not of the form host:port"),
]


@pytest.mark.parametrize(("arguments", "told"), MISTAKES)
def test_mistakes_are_reported_in_a_line(arguments: list[str], told: str, group_file: Path) -> None:
    done = run("simulate", *[str(group_file) if one == "FILE" else one for one in arguments])
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


# compare

SMALL = ("compare", "--members", "3", "--partitions", "6", "--turns", "4", "--seed", "2")


@pytest.mark.spec("Z8")
def test_designs_side_by_side() -> None:
    done = run(*SMALL, "--watch-brokers", "--story", "-a", "sticky")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("3 members and 6 partitions at first, 4 turns in ")
    assert lines[2].split() == ["ZooKeeper", "ZooKeeper,", "brokers", "watched", "coordinator,", "sticky"]
    assert sum(line.startswith(("znode reads", "partition-seconds that two read")) for line in lines) == 2
    assert len([line for line in lines if " s: " in line]) == 4
    assert done.stderr == ""


@pytest.mark.spec("Z8")
def test_the_same_seed_is_the_same_story() -> None:
    first, second, other = run(*SMALL), run(*SMALL), run(*SMALL[:-1], "3")
    assert first.stdout == second.stdout != other.stdout


@pytest.mark.spec("Z8")
def test_figures_and_growth_as_json() -> None:
    done = run("compare", "--members", "2", "--partitions", "4", "--turns", "3", "--growth", "--json")
    assert done.exit_code == 0, done.output
    read = [json.loads(line) for line in done.stdout.splitlines()]
    designs = [one for one in read if "design" in one]
    assert [one["design"] for one in designs] == ["ZooKeeper", "coordinator, range", "coordinator, cooperative-sticky"]
    assert all(len(one["settled"]) == 3 for one in designs)
    sizes = [(one["growth"]["members"], one["growth"]["partitions"]) for one in read if "growth" in one]
    assert sizes == [(2, 4), (4, 4), (8, 4), (2, 8), (2, 16)]


@pytest.mark.spec("Z8")
def test_a_timeline(tmp_path: Path) -> None:
    path = tmp_path / "timeline.svg"
    assert run(*SMALL, "--picture", str(path)).exit_code == 0
    tree = ElementTree.parse(path)
    texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in ("ZooKeeper", "coordinator, range")] == [
        "ZooKeeper",
        "coordinator, range",
    ]
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}rect"))) > 3 * 6


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-a", "sticki"], "--assignor: there is no assignor sticki; choose from range, roundrobin, sticky"),
        (["--picture", "missing/folder.svg"], "--picture: missing/folder.svg cannot be written"),
        (["--session-timeout-ms", "100"], "--session-timeout-ms"),
    ],
)
def test_comparisons_that_cannot_be_made(arguments: list[str], told: str) -> None:
    done = run(*SMALL, *arguments)
    assert done.exit_code != 0
    assert told in done.stderr
    assert "Traceback" not in done.output


def test_a_timeline_has_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timeline, "MOST_READINGS", 3)
    done = run(*SMALL, "--picture", str(tmp_path / "timeline.svg"))
    assert done.exit_code != 0
    assert "would be too large (3 at most); play fewer turns, or fewer partitions" in done.stderr


# example


def test_examples_are_listed_and_played() -> None:
    done = run("example")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in EXAMPLES)
    assert run("example", "Z9").exit_code == 2
    assert run("lesson", "A1").stdout == run("example", "A1").stdout == "\n".join(play("A1")) + "\n"


@pytest.mark.spec("C6", "R4")
def test_examples_with_a_table() -> None:
    lines = run("example", "walk").stdout.splitlines()
    assert [line.split()[:2] for line in lines[-2:]] == [["consumer2", "closes"], ["consumer3", "closes"]]
    rows = [json.loads(line) for line in run("example", "walk", "--json").stdout.splitlines()]
    assert rows[3]["consumer4"] == []
    done = run(
        "example", "placement", "--brokers", "3", "--partitions", "2", "--start", "1", "--racks", "a,b,c", "--json"
    )
    assert [json.loads(line)["replicas"] for line in done.stdout.splitlines()] == [[1, 2, 0], [2, 0, 1]]
    assert json.loads(run("example", "A1", "--json").stdout.splitlines()[0]) == {"line": "A1: the range assignor"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["placement", "--factor", "7"], "Replication factor: 7 larger than available brokers: 6."),
        (["placement", "--racks", "a,b"], "Not all brokers have rack information for replica rack aware assignment."),
        (
            ["placement", "--brokers", "1", "--racks", "a,b"],
            "--racks names 2 racks for 1 brokers; name one for each broker",
        ),
        (["walk", "--factor", "2"], "--factor is of the example placement; leave it out for walk"),
    ],
)
def test_examples_that_cannot_be_played(arguments: list[str], message: str) -> None:
    done = run("example", *arguments)
    assert done.exit_code == 2
    assert done.stderr == f"ottla rebalance: {message}\n"
