"""Bad input from the network: whatever one client sends, the others are served, and the broker says what was wrong."""

from __future__ import annotations

import http.client
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from e2e.valid_requests import VICTIM, Maker, apis_and_versions
from ottla.records.compression import Compression, compress
from ottla.records.crc import crc32c
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import RequestHeader, encode_request_frame
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.metadata import MetadataRequest
from support.framed_socket import SIZE, Disconnected
from support.ottla_server import OttlaServer
from support.ports import LOOPBACK
from support.raw_client import PRODUCE_V, RawClient, batch_of, fetch_request, produce_request, request_frame
from support.waiting import wait_until

SEED = 20260308
NEIGHBOUR = "neighbour"

#: Twice what is kept of receive buffers for the next connections (`net.buffers.POOL_LIMIT`).
MOST_GROWTH_BYTES = 64 * 1024 * 1024
#: The slowest answer that the neighbour may get while others misbehave. Generous: the machine has other things to do.
SLOWEST_ANSWER_S = 15.0
#: `socket.request.max.bytes` by default.
LARGEST_REQUEST = 100 * 1024 * 1024
FLOOD = 500


@dataclass
class Neighbour:
    """A well-behaved client that continues producing and fetching while others misbehave."""

    port: int
    sent: int = 0
    slowest_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._connected = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neighbour", daemon=True)

    def start(self) -> None:
        """Begin; when this returns the broker has its connection, so that tests can count the others."""
        self._stop.clear()
        self._connected.clear()
        self.slowest_s = 0.0
        self._thread = threading.Thread(target=self._run, name="neighbour", daemon=True)
        self._thread.start()
        assert self._connected.wait(60), "the neighbour gets no connection"

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the neighbour gets no answer"
        assert not self.problems, self.problems

    def _run(self) -> None:
        try:
            with RawClient(self.port, client_id=NEIGHBOUR) as client:
                client.end_offset(NEIGHBOUR, 0)
                self._connected.set()
                while not self._stop.wait(0.002):
                    self._round(client)
        except (Disconnected, TimeoutError, AssertionError) as error:
            self.problems.append(f"after {self.sent} records: {error!r}")
            self._connected.set()

    def _round(self, client: RawClient) -> None:
        value = b"%d" % self.sent
        began = time.monotonic()
        answer = client.produce(NEIGHBOUR, 0, batch_of(value))
        error, records = client.fetch(NEIGHBOUR, 0, self.sent)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        if (answer.error_code, answer.base_offset, error) != (0, self.sent, 0) or records[0].value != value:
            self.problems.append(f"record {self.sent}: {answer}, {error}, {records}")
        self.sent += 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    overrides = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
    made = OttlaServer(tmp_path_factory.mktemp("bad-input"), overrides=overrides).start()
    try:
        with RawClient(made.port) as client:
            assert client.create_topic(NEIGHBOUR) == 0
            assert client.find_coordinator("warm") == 0
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def neighbour(server: OttlaServer) -> Neighbour:
    made = Neighbour(server.port)
    # What every process loads for its first requests is not growth.
    made.start()
    wait_until(lambda: made.sent > 50 or made.problems, "the neighbour to be at work")
    made.stop()
    return made


@pytest.fixture(autouse=True)
def unharmed(server: OttlaServer, neighbour: Neighbour) -> Iterator[None]:
    """During and after each test the broker serves others, forgets the connections, stays small, and does not crash."""
    process = server.server
    memory, sockets = process.memory_bytes(), open_sockets(server)
    said_before = len(server.server.stderr)
    with RawClient(server.port) as client:
        # Others may have deleted it.
        assert client.create_topic(VICTIM) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    neighbour.start()
    yield
    neighbour.stop()
    assert server.server.running, server.server.output_tail()
    said = server.server.stderr[said_before:] if server.server is process else server.server.stderr
    assert "Traceback" not in said, said[said.index("Traceback") :][:5000]
    assert neighbour.slowest_s < SLOWEST_ANSWER_S
    with RawClient(server.port) as client:
        assert client.end_offset(NEIGHBOUR, 0) == neighbour.sent
    if server.server is not process:
        return
    wait_until(
        lambda: open_sockets(server) <= sockets, lambda: f"{open_sockets(server) - sockets} connections to close"
    )
    growth = server.server.memory_bytes() - memory
    assert growth < MOST_GROWTH_BYTES, f"grew by {growth / 1e6:.1f} MB"


@pytest.fixture
def client(server: OttlaServer) -> Iterator[RawClient]:
    with RawClient(server.port) as made:
        yield made


def open_sockets(server: OttlaServer) -> int:
    """Sockets that the broker holds, those included whose connection the kernel has forgotten."""
    count = 0
    for link in Path(f"/proc/{server.server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += link.readlink().name.startswith("socket:")
    return count


def check_refused_in_words(server: OttlaServer, attempt: Callable[[socket.socket], object], *words: str) -> None:
    """The broker closes the connection on which that is sent, and its log names the client and the cause.

    Of many such clients in a second the log names a few: another attempt is made then.
    """
    clients = set[str]()

    def is_said() -> bool:
        # Ports are used again: of earlier clients of one other things may have been said.
        if any(
            line.partition("connection of ")[2].startswith(tuple(clients)) and all(word in line for word in words)
            for line in server.server.stderr.splitlines()
        ):
            return True
        with socket.create_connection((LOOPBACK, server.port), timeout=60) as sock:
            host, port = sock.getsockname()
            attempt(sock)
            with suppress(OSError):
                assert sock.recv(1) == b"", "the broker closes the connection"
        clients.add(f"{host}:{port}:")
        return False

    wait_until(is_said, lambda: f"{words} about one of {clients}, not\n{server.server.output_tail()}", interval_s=0.2)


def _send(data: bytes, sock: socket.socket) -> None:
    sock.sendall(data)


def framed(data: bytes) -> bytes:
    return SIZE.pack(len(data)) + data


# Frames


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_random_frames(server: OttlaServer, attempt: int) -> None:
    chance = random.Random(SEED + attempt)
    for _ in range(100):
        with RawClient(server.port) as client, suppress(Disconnected):
            client.send_bytes(framed(chance.randbytes(chance.choice((0, 1, 8, 10, 50, 1000)))))
            assert client.is_closed_by_broker()


@pytest.mark.slow
def test_random_bodies_behind_good_headers(server: OttlaServer) -> None:
    chance = random.Random(SEED)
    for key, version in apis_and_versions():
        for _ in range(8):
            header = RequestHeader(key, version, 7, "fuzz")
            frame = encode_request_frame(header, chance.randbytes(chance.randint(1, 80)))
            attack(server, frame)
    assert server.server.running, server.server.output_tail()


@pytest.mark.slow
def test_requests_cut_off_anywhere(server: OttlaServer) -> None:
    """Every beginning of a request of each API, sent as a whole frame, is refused by closing the connection."""
    maker = Maker(random.Random(SEED))
    for key, version in apis_and_versions():
        body = request_frame(maker.request(key, version), version)[4:]
        for length in range(len(body)):
            with RawClient(server.port) as client:
                client.send_bytes(framed(body[:length]))
                assert client.is_closed_by_broker(), (API[key], version, length)


def test_a_frame_that_never_ends(server: OttlaServer) -> None:
    frame = request_frame(ApiVersionsRequest(), 3)
    for length in range(1, len(frame)):
        with RawClient(server.port) as client:
            client.send_bytes(frame[:length])
            client.socket.shutdown(socket.SHUT_WR)
            assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    ("size", "why"),
    [
        (0x7FFFFFFF, "larger than socket.request.max.bytes=104857600"),
        (LARGEST_REQUEST + 1, "larger than socket.request.max.bytes=104857600"),
        (-1, "negative"),
        (-(2**31), "negative"),
    ],
)
def test_absurd_sizes_are_refused_before_anything_else(server: OttlaServer, size: int, why: str) -> None:
    check_refused_in_words(server, partial(_send, SIZE.pack(size)), f"a request of {size} bytes", why)


def test_an_empty_frame(server: OttlaServer) -> None:
    check_refused_in_words(server, partial(_send, SIZE.pack(0)), "too short for a request header")


def test_announced_bytes_cost_nothing_before_they_come(server: OttlaServer) -> None:
    before = server.server.memory_bytes()
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.port)) for _ in range(100)]
        for one in clients:
            one.send_bytes(SIZE.pack(LARGEST_REQUEST) + b"\0" * 100)
        for one in clients[:10]:
            one.send_bytes(b"\0" * 1024 * 1024)
        with RawClient(server.port) as other:
            assert other.topics()
        assert server.server.memory_bytes() - before < MOST_GROWTH_BYTES


def test_the_largest_request_leaves_no_memory_behind(server: OttlaServer) -> None:
    before = server.server.memory_bytes()
    with RawClient(server.port) as client:
        answer = client.produce(VICTIM, 0, batch_of(b"x" * (LARGEST_REQUEST - 1000)))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    wait_until(lambda: server.server.memory_bytes() - before < MOST_GROWTH_BYTES, "the memory to be given back")


# Values


def attack(server: OttlaServer, frame: bytes, timeout_s: float = 0.3) -> bytes | None:
    """Send a frame; the answer's frame, None where the broker closes the connection or lets us wait."""
    with RawClient(server.port, timeout_s=timeout_s) as client:
        try:
            client.send_bytes(frame)
            return client.receive_frame()
        except (Disconnected, TimeoutError):
            return None


@pytest.mark.slow
@pytest.mark.parametrize("absurd", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x07"])
def test_absurd_counts_and_lengths_anywhere(server: OttlaServer, absurd: bytes) -> None:
    """Each position of a valid request of each API overwritten with a huge or negative number."""
    maker = Maker(random.Random(SEED))
    for key, version in apis_and_versions():
        body = request_frame(maker.request(key, version), version)[4:]
        for position in range(8, len(body), 1 if len(body) < 100 else 3):
            attack(server, framed(body[:position] + absurd + body[position + len(absurd) :]), timeout_s=0.1)
    assert server.server.running, server.server.output_tail()


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_extreme_values_in_valid_requests(server: OttlaServer, attempt: int) -> None:
    """Requests that parse and make no sense are answered, with errors, or the connection is closed."""
    maker = Maker(random.Random(SEED + attempt), absurd=True)
    for key, version in apis_and_versions():
        for _ in range(4):
            attack(server, request_frame(maker.request(key, version), version), timeout_s=0.1)
    assert server.server.running, server.server.output_tail()


def test_unknown_apis_are_refused_in_words(server: OttlaServer) -> None:
    for key in (-1, 58, 999, 32767):
        request = framed(struct.pack(">hhih", key, 0, 1, -1))
        check_refused_in_words(server, partial(_send, request), "unknown API", str(key))


def test_versions_that_nobody_has_are_refused_in_words(server: OttlaServer) -> None:
    for version in (-1, 100):
        request = framed(struct.pack(">hhih", ApiKey.METADATA, version, 1, -1) + b"\0" * 20)
        why = f"api key 3 with version {version} which is not supported"
        check_refused_in_words(server, partial(_send, request), why)


def test_an_unknown_topic_and_partition(client: RawClient) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for topic, partition in (("no-such-topic", 0), (VICTIM, 7), (VICTIM, -1), ("", 0), ("..", 0)):
        assert client.produce(topic, partition, batch_of(b"x")).error_code == unknown
        assert client.fetch(topic, partition, 0) == (unknown, [])
    assert client.metadata("no-such-topic").topics[0].error_code == unknown
    assert "no-such-topic" not in client.topics()


def test_offsets_out_of_range(client: RawClient) -> None:
    assert client.create_topic("short") == 0
    assert client.produce("short", 0, batch_of(b"x")).error_code == 0
    for offset in (-1, 2, 2**63 - 1, -(2**63)):
        assert client.fetch("short", 0, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])


# Batches


def test_a_wrong_checksum_is_refused_and_leaves_nothing(client: RawClient) -> None:
    assert client.create_topic("crc") == 0
    batch = bytearray(batch_of(b"first", b"second"))
    batch[-1] ^= 1
    refused = client.produce("crc", 0, bytes(batch))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert client.end_offset("crc", 0) == 0
    assert client.produce("crc", 0, batch_of(b"good")).base_offset == 0
    assert [record.value for record in client.read_all("crc", 0)] == [b"good"]


@pytest.mark.slow
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_flipped_bytes_never_reach_consumers(client: RawClient, flip: int) -> None:
    """Any byte of a batch flipped: it is refused, or (offset and epoch, which the broker sets) makes no difference."""
    topic = f"flipped-{flip}"
    assert client.create_topic(topic) == 0
    sound = batch_of(b"one", b"two")
    stored = 0
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= flip
        answer = client.produce(topic, 0, bytes(damaged))
        if answer.error_code == 0:
            assert 12 <= position < 16, f"byte {position} flipped by {flip:#x} was accepted"
            stored += 1
        else:
            assert answer.base_offset == -1
    values = [record.value for record in client.read_all(topic, 0)]
    assert values == [b"one", b"two"] * stored


@pytest.mark.parametrize("records", [b"", b"\0", b"\0" * 11, b"\0" * 61, b"\xff" * 61, b"\0" * 8 + b"\x7f\xff\xff\xff"])
def test_records_that_are_no_batch(client: RawClient, records: bytes) -> None:
    answer = client.produce(VICTIM, 0, records)
    assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("count", [0, 1, 3, 0x7FFFFFFF, -1])
def test_a_wrong_count_of_records_is_refused(client: RawClient, count: int) -> None:
    batch = bytearray(batch_of(b"one", b"two"))
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    answer = client.produce(VICTIM, 0, bytes(batch))
    assert answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


def test_a_batch_that_is_too_large(server: OttlaServer, client: RawClient) -> None:
    limit = 1024 * 1024 + 12
    answer = client.produce(VICTIM, 0, batch_of(b"x" * (limit + 1)))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.metadata(VICTIM).topics[0].error_code == 0, "the connection goes on"


@pytest.mark.parametrize(
    ("codec", "expanded", "count"),
    [
        (Compression.GZIP, bytes(300_000_000), 1),
        (Compression.ZSTD, bytes(1_000_000_000), 1),
        (Compression.ZSTD, b"\x10\0\0\0\2k\0\0" * 4_000_000, 4_000_000),
    ],
    ids=["gzip", "zstd", "records"],
)
def test_compression_bombs(
    server: OttlaServer, client: RawClient, codec: Compression, expanded: bytes, count: int
) -> None:
    """Where the broker has to look into batches (keys on compacted topics, timestamps) they may not blow up."""
    assert client.create_topic(f"bombed-{codec}-{count}", cleanup_policy="compact") == 0
    bomb = bomb_of(codec, expanded, count)
    peak = server.server.peak_memory_bytes()
    answer = client.produce(f"bombed-{codec}-{count}", 0, bomb)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    # A plain topic takes it unseen, as any batch; a lookup by timestamp looks into it.
    assert client.produce(VICTIM, 0, bomb).error_code == 0
    with suppress(AssertionError):
        client.end_offset(VICTIM, 0, timestamp=1)
    assert server.server.peak_memory_bytes() - peak < 3 * MOST_GROWTH_BYTES


def bomb_of(codec: Compression, expanded: bytes, count: int) -> bytes:
    """A batch with a right header and checksum, whose records are `expanded`."""
    batch = bytearray(batch_of(b"", compression=codec)[:61] + compress(codec, expanded))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


# Other protocols


def test_tls_is_recognised(server: OttlaServer) -> None:
    def shake_hands(sock: socket.socket) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")

    check_refused_in_words(
        server, shake_hands, "looks like TLS sent to a plaintext listener", "security.protocol=PLAINTEXT"
    )


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS"])
def test_http_is_recognised(server: OttlaServer, method: str) -> None:
    before = server.server.stderr.count("looks like HTTP")
    connection = http.client.HTTPConnection(LOOPBACK, server.port, timeout=60)
    try:
        connection.request(method, "/topics")
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            connection.getresponse()
    finally:
        connection.close()
    wait_until(lambda: server.server.stderr.count("looks like HTTP") > before, "a line about HTTP")


# Behaviour


def test_a_byte_at_a_time(client: RawClient) -> None:
    frame = request_frame(ApiVersionsRequest(client_software_name="slow", client_software_version="1"), 3, 1)
    client.correlation_id = 1
    for at in range(len(frame)):
        client.send_bytes(frame[at : at + 1])
        time.sleep(0.001)  # sleep: what makes this client slow
    assert client.receive(ApiVersionsResponse, 3).error_code == 0


@pytest.mark.slow
def test_one_that_never_reads_its_answers(server: OttlaServer, client: RawClient) -> None:
    """Its requests stop being read; its answers do not pile up in the broker."""
    assert client.create_topic("large") == 0
    for _ in range(8):
        assert client.produce("large", 0, batch_of(b"x" * 1_000_000)).error_code == 0
    for request, version in ((fetch_request("large", 0, 0, 100), 11), (MetadataRequest(topics=None), 12)):
        before = server.server.memory_bytes()
        with RawClient(server.port) as deaf:
            sent = send_until_stuck(deaf.socket, request_frame(request, version))
            assert sent < 64 * 1024 * 1024
            assert client.metadata().topics, "others are answered"
            assert server.server.memory_bytes() - before < MOST_GROWTH_BYTES


def send_until_stuck(sock: socket.socket, frame: bytes) -> int:
    """Send requests until nobody takes any more; the bytes sent."""
    sock.settimeout(0.5)
    many = frame * 1000
    sent = 0
    try:
        while sent < 1 << 30:
            sent += sock.send(many)
    except TimeoutError:
        return sent
    raise AssertionError("the broker takes requests without end from a client that reads no answer")


@pytest.mark.slow
@pytest.mark.parametrize("data", [b"", b"\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\x0a\x03\xe7\0\0\0\0\0\1\xff\xff"])
def test_a_flood_of_connections(server: OttlaServer, data: bytes) -> None:
    """Silent ones, ones with half a size, ones that are refused at once."""
    with ExitStack() as stack:
        for _ in range(FLOOD):
            one = stack.enter_context(RawClient(server.port))
            with suppress(Disconnected):
                one.send_bytes(data)
        with RawClient(server.port) as other:
            assert NEIGHBOUR in other.topics()


@pytest.mark.slow
def test_connections_that_come_and_go(server: OttlaServer) -> None:
    for at in range(FLOOD):
        with RawClient(server.port) as one:
            if at % 2:
                reset_on_close(one.socket)
    with RawClient(server.port) as other:
        assert NEIGHBOUR in other.topics()


@pytest.mark.slow
def test_more_connections_than_the_process_may_open_files(tmp_path: Path) -> None:
    """A flood does not take the files that logs need: who is connected continues, the rest is refused in words."""

    class Limited(OttlaServer):
        def command(self) -> list[str]:
            return ["/bin/sh", "-c", 'ulimit -n 128; exec "$@"', "sh", *super().command()]

    limited = Limited(tmp_path / "limited", overrides={"log.flush.interval.messages": "1"}).start()
    try:
        with RawClient(limited.port) as client:
            assert client.create_topic("t", 3) == 0
            with ExitStack() as stack:
                for _ in range(400):
                    stack.enter_context(RawClient(limited.port))
                wait_until(lambda: "refusing connections" in limited.server.stderr, "a word about refused connections")
                assert "limit of open files (ulimit -n) allow 32" in limited.server.stderr
                for partition in range(3):
                    assert client.produce("t", partition, batch_of(b"x")).error_code == 0
                assert client.create_topic("more", 20) == 0
                assert client.find_coordinator("g") == 0
                assert client.commit("g", "t", 0, 1) == 0
            wait_until(lambda: is_served(limited.port), "new connections to be accepted")
            assert client.produce("t", 0, batch_of(b"y")).error_code == 0
        assert limited.server.stderr.count("\n") == limited.server.stderr.count("refusing connections")
        assert limited.stop() == 0
    finally:
        limited.stop()


def is_served(port: int) -> bool:
    try:
        with RawClient(port) as client:
            return bool(client.topics())
    except Disconnected:
        return False


def test_half_closed_after_a_request(server: OttlaServer) -> None:
    """What was asked before the end of the stream is done; the connection ends."""
    for number in range(20):
        with RawClient(server.port) as client:
            if number == 0:
                assert client.create_topic("half") == 0
            client.send(produce_request("half", 0, batch_of(b"%d" % number)), PRODUCE_V)
            client.socket.shutdown(socket.SHUT_WR)
            with suppress(Disconnected):
                client.receive_frame()
            assert client.is_closed_by_broker()
    with RawClient(server.port) as client:
        assert [record.value for record in client.read_all("half", 0)] == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("abruptly", [False, True])
def test_vanishing_while_a_fetch_waits(server: OttlaServer, client: RawClient, abruptly: bool) -> None:
    topic = f"waited-for-{abruptly}"
    assert client.create_topic(topic) == 0
    open_before = open_sockets(server)
    for _ in range(20):
        with RawClient(server.port) as waiting:
            waiting.send(fetch_request(topic, 0, 0, max_wait_ms=2**31 - 1), 11)
            if abruptly:
                reset_on_close(waiting.socket)
    wait_until(lambda: open_sockets(server) <= open_before, "the connections to be closed")
    assert client.produce(topic, 0, batch_of(b"x")).error_code == 0
    assert client.fetch(topic, 0, 0)[1][0].value == b"x"


def test_vanishing_while_a_long_answer_is_sent(server: OttlaServer, client: RawClient) -> None:
    assert client.create_topic("long") == 0
    for _ in range(4):
        assert client.produce("long", 0, batch_of(b"x" * 1_000_000)).error_code == 0
    for _ in range(20):
        with RawClient(server.port) as leaving:
            leaving.send(fetch_request("long", 0, 0, 100), 11)
            leaving.receive_exactly(1000)
            reset_on_close(leaving.socket)


def reset_on_close(sock: socket.socket) -> None:
    """Let the connection end with a reset instead of an orderly close."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_after_all_this_nothing_is_lost(server: OttlaServer, neighbour: Neighbour, unharmed: None) -> None:
    """Runs last, and restarts the broker: what the neighbour wrote meanwhile is all there, stop and start are clean."""
    neighbour.stop()
    assert server.stop() == 0
    server.restart()
    with RawClient(server.port) as client:
        values = [record.value for record in client.read_all(NEIGHBOUR, 0)]
    assert values == [b"%d" % number for number in range(neighbour.sent)]
