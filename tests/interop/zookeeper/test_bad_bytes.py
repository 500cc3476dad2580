"""Bytes that make no sense, sent to a running server: it answers or hangs up, and what it holds is as it says."""

from __future__ import annotations

import socket
import struct
from random import Random

import pytest

from interop.zookeeper import raw
from interop.zookeeper.raw import OPEN, RawClient, Stat
from support.ottla_zookeeper import OttlaZooKeeper
from support.ports import LOOPBACK
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.slow]

HANG_S = 20.0
TIMEOUT_MS = 1000
PATHS = ("/", "/a", "/a/b", "", "a", "//", "/a/", "/\0", "/é", "/" + "x" * 1000, "/a/.", "/../b", "/\U0001f600", "/n-")
OPS = (*range(1, 10), *range(11, 23), *range(100, 108), -11, -1, 0, 77, -(2**31), 2**31 - 1)
CHANGES = (raw.CREATE, raw.CREATE, raw.CREATE2, raw.SET_DATA, raw.SET_ACL, raw.DELETE, raw.MULTI)
FLAGS = (0, 0, 0, 1, 2, 3, 4, 7, -1)
SIZES = (-1, -2, 0, 1, 2**31 - 1, -(2**31), 1_000_000, 0x7F7F7F7F)
ACLS = (
    OPEN,
    (),
    ((31, "auth", ""),),
    ((1, "ip", "::1/200"),),
    ((31, "digest", "a:b:c"),),
    ((-1, "world", "anyone"),),
    ((31, "", ""),),
)


def body(op: int, rng: Random) -> bytes:
    """What a request of that type may say."""
    path, version = rng.choice(PATHS), rng.choice((-1, -1, 0, 1, 2**31 - 1, -(2**31)))
    if op in (raw.CREATE, raw.CREATE2):
        return raw.create(
            path, rng.choice((None, b"", rng.randbytes(300))), rng.choice(FLAGS), rng.choice((OPEN, *ACLS))
        )
    if op in (raw.DELETE, raw.CHECK):
        return raw.versioned(path, version)
    if op == raw.SET_DATA:
        return raw.set_data(path, rng.randbytes(20), version)
    if op == raw.SET_ACL:
        return raw.set_acl(path, rng.choice(ACLS), version)
    if op == raw.MULTI:
        inner = [rng.choice((1, 2, 5, 13, 15, 14, -1, 99)) for _ in range(rng.randrange(4))]
        return raw.multi([(each, body(each, rng)) for each in inner])
    if op in (raw.SET_WATCHES, raw.SET_WATCHES2):
        lists = raw.strings([]) * 2 if op == raw.SET_WATCHES2 else b""
        return raw.set_watches(rng.choice((0, -1, 2**63 - 1)), [path], [path, "/x"], [path]) + lists
    if op == raw.AUTH:
        return raw.auth(rng.choice(("digest", "ip", "x")), rng.choice((b"a:b", b"\xff\xfe", b"")))
    return raw.watching(path, True)


def damaged(frame: bytes, rng: Random) -> bytes:
    made = bytearray(frame)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(made) + 1)
        how = rng.randrange(4)
        if how == 0:
            made[at : at + 1] = rng.randbytes(1)
        elif how == 1:
            del made[at:]
        elif how == 2:
            made[at : at + 4] = struct.pack(">i", rng.choice(SIZES))
        else:
            made[at:at] = rng.randbytes(rng.randrange(10))
    return bytes(made)


def life(rng: Random) -> bytes:
    """All that one client sends."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(60))
    connect = struct.pack(">iqiq", 0, rng.choice((0, 0, 0, -5, 2**63 - 1)), TIMEOUT_MS, rng.choice((0, 0, 0, 1, -1)))
    frames = [connect + raw.buffer(bytes(16)) + b"\0"]
    for xid in range(rng.randrange(30)):
        op = rng.choice(CHANGES if rng.random() < 0.7 else OPS)
        frames.append(struct.pack(">ii", xid, op) + body(op, rng))
    sent = b""
    for frame in frames:
        whole = damaged(frame, rng) if rng.random() < 0.2 else frame
        size = len(whole) if rng.random() < 0.98 else rng.choice(SIZES)
        sent += struct.pack(">i", size) + whole
    return sent


def live(port: int, rng: Random) -> None:
    """Send all of it, read what comes; TimeoutError where nothing does any more."""
    sent = life(rng)
    with socket.create_connection((LOOPBACK, port), HANG_S) as client:
        try:
            pieces = rng.choice((1, 1, 7))
            step = len(sent) // pieces + 1
            for start in range(0, len(sent), step):
                client.sendall(sent[start : start + step])
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        except TimeoutError:
            raise
        except OSError:
            return  # it hung up


def figure(port: int, name: str) -> int:
    """A number of `mntr`."""
    with socket.create_connection((LOOPBACK, port), HANG_S) as client:
        client.sendall(b"mntr")
        text = b""
        while more := client.recv(65536):
            text += more
    return int(next(line.split("\t")[1] for line in text.decode().splitlines() if line.startswith(f"{name}\t")))


def everything(port: int) -> dict[str, tuple[object, Stat]]:
    """All nodes that may be read, when all former sessions have ended."""
    wait_until(lambda: figure(port, "zk_global_sessions") == 0, "all sessions to end")
    found: dict[str, tuple[object, Stat]] = {}
    with RawClient(port, timeout_ms=TIMEOUT_MS) as client:
        paths = ["/"]
        for path in paths:
            answer = client.ask(raw.GET_DATA, raw.watching(path))
            if answer.error == 0:
                assert isinstance(answer.result, tuple)
                found[path] = answer.result
            listed = client.ask(raw.GET_CHILDREN, raw.watching(path)).result
            assert listed is None or isinstance(listed, list)
            paths += [f"{path.rstrip('/')}/{name}" for name in listed or ()]
    return found


def check(server: OttlaZooKeeper, seed: int, lives: int) -> None:
    server.start()
    try:
        rng = Random(seed)
        for _ in range(lives):
            live(server.port, rng)
        before = everything(server.port)
        assert len(before) > 5
        server.kill9()
        assert "Traceback" not in server.server.stderr
        assert "could not be worked on" not in server.server.stderr
        server.start()
        assert everything(server.port) == before
    finally:
        server.stop()


def test_a_server_answers_or_hangs_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    check(OttlaZooKeeper(tmp_path_factory.mktemp("bad-bytes")), 1, 200)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_server_answers_or_hangs_up_many_times(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(OttlaZooKeeper(tmp_path_factory.mktemp("bad-bytes")), seed, 3000)
