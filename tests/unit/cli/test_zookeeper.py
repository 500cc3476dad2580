from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from ottla.zk.store import LOG_NAME, SNAPSHOT_NAME
from support.ottla_zookeeper import OttlaZooKeeper

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.slow]


def refused(*arguments: str) -> str:
    """What `ottla zookeeper` says when it does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "zookeeper", *arguments],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    return done.stderr


def test_it_starts_serves_and_stops(tmp_path: Path) -> None:
    server = OttlaZooKeeper(tmp_path).start()
    client = KazooClient(server.connect)
    client.start()
    client.create("/kept", b"x")
    client.stop()
    client.close()
    assert server.stop() == 0
    assert server.server.stdout.splitlines()[-1] == "stopped"
    assert server.server.stderr == ""
    assert "2 nodes, 0 sessions" in server.start().server.stdout
    server.stop()


def test_a_directory_or_port_in_use_is_reported(tmp_path: Path) -> None:
    server = OttlaZooKeeper(tmp_path).start()
    try:
        said = refused("--port", "0", "--data", str(server.data))
        assert "another process has" in said
        assert "--data" in said
        other = str(tmp_path / "other")
        assert "the port is in use" in refused("--port", str(server.port), "--data", other)
        # Nothing was left locked.
        assert "the port is in use" in refused("--port", str(server.port), "--data", other)
    finally:
        server.stop()


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / SNAPSHOT_NAME).write_bytes(b"not a snapshot")
    assert f"{SNAPSHOT_NAME} is damaged" in refused("--port", "0", "--data", str(tmp_path))


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot" in refused("--port", "0", "--data", str(tmp_path / "file" / "data"))


def test_ports_are_numbers_of_ports() -> None:
    assert "65535" in refused("--port", "65536")


def test_killed_in_the_middle_of_a_write_it_starts_again(tmp_path: Path) -> None:
    server = OttlaZooKeeper(tmp_path).start()
    client = KazooClient(server.connect)
    client.start()
    client.create("/kept", b"x")
    client.stop()
    client.close()
    server.kill9()
    with (server.data / LOG_NAME).open("ab") as log:
        log.write(b"\0\0\0\x20torn")
    server.start()
    again = KazooClient(server.connect)
    again.start()
    assert again.get("/kept")[0] == b"x"
    again.stop()
    again.close()
    assert server.stop() == 0


def test_nodes_are_listed_and_shown(tmp_path: Path) -> None:
    server = OttlaZooKeeper(tmp_path).start()

    def shown(*arguments: str, code: int = 0) -> str:
        line = [sys.executable, "-m", "ottla", "zookeeper", *arguments]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
        return done.stderr if code else done.stdout

    try:
        client = KazooClient(server.connect)
        client.start()
        client.create("/kafka/brokers", b'{"a":[1]}', makepath=True)
        client.create("/kafka/brokers/me", b"\x1b[31m", ephemeral=True)
        below = ("-z", f"{server.connect}/kafka")
        assert shown("ls", "/brokers", *below) == "me\n"
        secret = make_digest_acl("u", "p", all=True)
        client.create("/other/secret/below", b"x", makepath=True)
        client.set_acls("/other/secret", [secret])
        assert "/other/secret is not shown: its ACL" in shown("tree", "/other", "-z", server.connect, code=1)
        assert "/other/secret may not be read" in shown("get", "/other/secret", "-z", server.connect, code=2)
        assert shown("get", "/brokers", *below).startswith('{\n  "a": [\n    1\n  ]\n}\nversion 0, created 20')
        owner = f"{client.client_id[0]:#x}"
        assert shown("get", "/brokers/me", *below).endswith(f"0 children, ephemeral, of session {owner}\n")
        tree = ["/", '  brokers  {"a":[1]}', f"    me  0x1b5b33316d  (session {owner})"]
        assert shown("tree", *below).splitlines() == tree
        assert [json.loads(line)["path"] for line in shown("tree", "--json", *below).splitlines()] == [
            "/",
            "/brokers",
            "/brokers/me",
        ]
        assert "node /no does not exist;" in shown("get", "/no", *below, code=1)
        assert "no is not a path of a node; /no is" in shown("get", "no", *below, code=2)
        assert "node /kafak, the root of the paths, does not exist at" in shown(
            "ls", "-z", f"{server.connect}/kafak", code=2
        )
        assert client.exists("/kafak") is None
        client.stop()
        client.close()
    finally:
        server.stop()
    assert "No ZooKeeper could be used" in shown("ls", "-z", server.connect, "--timeout", "1", code=2)
