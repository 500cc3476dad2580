"""Connections of a TLS listener: the handshake and its failures, and what only a connection in TLS has to do.

`test_framed.py` and `test_gathering.py` run over TLS, too.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from ottla.env.tls import RECORD_BYTES
from ottla.net.connection import ANONYMOUS
from ottla.net.responses import SEND_BYTES_PER_SLICE
from ottla.net.tls import HANDSHAKE_LIMIT_S
from support.certificates import authority, issue, the_authority
from support.wired_connection import Wired, client_context, contexts, load_keys

pytestmark = pytest.mark.spec("S1")


Wire = Callable[..., Wired]


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Makes connections before their handshake, of these contexts of server and client."""
    made: list[Wired] = []

    def make(server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None) -> Wired:
        made.append(Wired(tls=(server or contexts()[0], client or contexts()[1])))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def new(wire: Wire) -> Wired:
    """A connection before its handshake."""
    return wire()


@pytest.fixture
def wired(new: Wired) -> Wired:
    new.shake_hands()
    return new


def asking(trusted: ssl.VerifyMode) -> ssl.SSLContext:
    """The context of a listener that asks for certificates of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_keys(context, issue(the_authority(), "localhost"))
    context.verify_mode = trusted
    context.load_verify_locations(cadata=the_authority().certificate_pem)
    return context


def until_closed(wired: Wired) -> str:
    """The report of a handshake that fails; the client's failure is not looked at."""
    for _ in range(100):
        with suppress(OSError):
            wired.client.shake_hands()
        wired.loop.settle()
        if wired.connection.closed:
            assert not wired.loop.readers
            assert not wired.loop.later
            assert wired.service.frames == []
            (report,) = wired.reports
            return report
    raise AssertionError("the connection stays open")


def test_there_is_no_principal_before_the_handshake(new: Wired) -> None:
    assert new.connection.principal is None
    assert new.connection.frame_limit == new.service.limit_before_login
    new.shake_hands()
    assert new.connection.principal == ANONYMOUS
    assert new.connection.frame_limit == new.service.limit
    assert not new.loop.later, "the time limit is over"


def test_the_principal_is_the_clients_certificate(wire: Wire) -> None:
    shown = issue(the_authority(), "ann")
    for trusted in (ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED):
        wired = wire(asking(trusted), client_context(shown))
        wired.shake_hands()
        assert str(wired.connection.principal) == f"User:{len(shown.der)}"


def test_a_client_without_a_certificate_is_anonymous_where_none_is_required(wire: Wire) -> None:
    wired = wire(asking(ssl.CERT_OPTIONAL), client_context())
    wired.shake_hands()
    assert wired.connection.principal == ANONYMOUS


@pytest.mark.parametrize(
    ("shown", "cause"),
    [
        (None, "the client shows no certificate; give it a key store"),
        (issue(authority("other"), "ann"), "the client's certificate is refused: self-signed certificate"),
        (issue(the_authority(), "ann", expired=True), "the client's certificate is refused: certificate has expired"),
    ],
)
def test_a_certificate_that_is_not_accepted_closes_the_connection(wire: Wire, shown, cause) -> None:
    wired = wire(asking(ssl.CERT_REQUIRED), client_context(shown))
    assert cause in until_closed(wired)


def test_a_client_that_does_not_trust_the_broker(wire: Wire) -> None:
    wired = wire(client=client_context(trusted=authority("other")))
    assert "the client does not trust this broker's certificate" in until_closed(wired)


def test_a_certificate_that_gives_no_principal(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.wired_connection.principal_of", lambda certificate: "no rule matches")
    wired = wire()
    assert until_closed(wired).endswith("its TLS handshake failed: no rule matches")


@pytest.mark.parametrize("sent", [b"\0\0\0\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n"])
def test_a_client_that_does_not_speak_tls_gets_a_clean_end(new: Wired, sent: bytes) -> None:
    new.server.close()  # the test's own end would keep the connection open
    plain = socket.socket(fileno=new.client.tls.detach())
    plain.sendall(sent)
    new.loop.settle()
    assert new.connection.closed
    (report,) = new.reports
    assert report.startswith(
        "closing the connection of 127.0.0.1:1 at listener SSL: its TLS handshake failed: the client d"
    )
    assert "does not speak TLS" in report
    with plain, suppress(ConnectionResetError):
        assert plain.recv(100) == b"", "not a TLS alert, which it would take for a frame"


def client_hello() -> bytearray:
    """What a client sends first."""
    sent = ssl.MemoryBIO()
    client = contexts()[1].wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return bytearray(sent.read())


@pytest.mark.parametrize("seed", range(20))
def test_damaged_handshakes_close_their_connection(new: Wired, seed: int) -> None:
    """A damaged ClientHello, whole or cut, closes the connection with one report, or waits for its time limit."""
    random, hello = Random(seed), client_hello()
    new.server.close()
    for _ in range(random.randint(1, 20)):
        hello[random.randrange(1, len(hello))] = random.randrange(256)
    plain = socket.socket(fileno=new.client.tls.detach())
    plain.sendall(hello[: random.choice([len(hello), random.randrange(6, len(hello))])] + random.randbytes(100))
    new.loop.settle()
    if not new.connection.closed:
        new.loop.later[0][1]()
    assert new.connection.closed
    assert new.service.frames == []
    assert len(new.reports) == 1
    plain.close()


def test_a_health_check_is_not_reported(new: Wired) -> None:
    new.client.tls.close()
    new.loop.settle()
    assert new.connection.closed
    assert new.reports == []


def test_a_client_that_goes_in_the_middle_of_its_handshake(new: Wired) -> None:
    assert not new.client.shake_hands()
    new.client.tls.close()
    new.loop.settle()
    assert new.connection.closed
    assert len(new.reports) == 1


def test_a_handshake_has_a_time_limit(new: Wired) -> None:
    assert not new.client.shake_hands()
    new.loop.settle()
    ((limit_s, too_slow),) = new.loop.later
    assert limit_s == HANDSHAKE_LIMIT_S
    too_slow()
    assert new.connection.closed
    assert new.reports[0].endswith("its TLS handshake failed: it was not finished within 10 s")
    assert not new.loop.readers


@pytest.mark.spec("S5")
def test_a_handshake_of_a_byte_at_a_time_gets_no_more_time(new: Wired) -> None:
    begun = list(new.loop.later)
    new.server.close()
    with socket.socket(fileno=new.client.tls.detach()) as plain:
        for byte in client_hello()[:-1]:
            plain.send(bytes((byte,)))
            new.loop.settle()
        assert new.connection.principal is None
        assert new.loop.later == begun, "the limit is that of the beginning"
        new.loop.later[0][1]()
        assert new.connection.closed
        assert new.service.frames == []


def test_a_handshake_that_is_done_is_not_ended_by_its_time_limit(new: Wired) -> None:
    ((_, too_slow),) = new.loop.later
    new.shake_hands()
    too_slow()
    assert not new.connection.closed


def test_requests_in_one_record_are_all_handled_although_the_system_announces_nothing(wired: Wired) -> None:
    payloads = [bytes([number]) * 300 for number in range(50)]
    wired.send(*payloads)
    assert wired.received() == b"".join(payloads)


def test_requests_that_were_decrypted_while_nothing_was_read_are_handled(wired: Wired) -> None:
    wired.service.answer = lambda frame: None
    wired.send(b"first", *[b"x" * 700] * 20)
    wired.loop.settle()
    assert not wired.loop.readers, "the buffer is full"
    wired.service.answer = lambda frame: [frame]
    wired.connection.send([b"first"])
    assert wired.received() == b"first" + b"x" * 14_000


def test_a_large_request_and_a_large_response_are_whole(wired: Wired) -> None:
    wired.service.limit = wired.connection.frame_limit = 8 << 20
    payload = bytes(range(256)) * (12 << 10)
    data = memoryview(len(payload).to_bytes(4, "big") + payload)
    while data:
        try:
            data = data[wired.client.send(data[:RECORD_BYTES]) :]
        except BlockingIOError:
            wired.loop.settle()
    wired.loop.settle()
    assert wired.service.frames == [payload]
    assert wired.received() == payload


def test_a_response_of_many_parts_is_whole_for_a_slow_reader(wired: Wired) -> None:
    """What the system did not take is offered in other pieces, which OpenSSL alone refuses."""
    wired.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    parts = [bytes([size % 251]) * size for size in (1, 5, 3000, 1, 20_000, 7, 100_000, 2)]
    wired.service.answer = lambda frame: [frame, *parts]
    wired.send(b"one", b"two")
    received = b""
    wanted = b"one" + b"".join(parts) + b"two" + b"".join(parts)
    for _ in range(10_000):
        wired.loop.turn()
        try:
            received += wired.client.recv(1000)
        except BlockingIOError:
            continue
        if len(received) == len(wanted):
            break
    assert received == wanted
    assert wired.connection.is_idle


def test_bytes_that_are_offered_again_in_shorter_pieces_go_out_once(wired: Wired) -> None:
    wired.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    stream = wired.stream
    data = bytes(range(256)) * 1000
    sent = 0
    with suppress(BlockingIOError):
        while sent < len(data):
            sent += stream.send(data[sent:], 0)
    assert sent < len(data)
    received = b""
    step = 1
    while sent < len(data) or len(received) < len(data):
        with suppress(BlockingIOError):
            while sent < len(data):
                sent += stream.sendmsg([data[sent : sent + step], data[sent + step : sent + step + 2]], (), 0)
                step = step % 1000 + 37
        with suppress(BlockingIOError):
            received += wired.client.recv(1 << 20)
    assert received == data


def test_a_slice_of_the_loop_sends_a_limited_number_of_bytes(wired: Wired) -> None:
    wired.service.answer = lambda frame: [bytes(4 << 20)]
    wired.send(b"fetch")
    wired.loop.turn()
    assert 0 < wired.connection.bytes_out <= SEND_BYTES_PER_SLICE
    assert len(wired.received()) == 4 << 20


def test_looking_for_the_end_while_nothing_is_read_loses_nothing(wired: Wired) -> None:
    stream = wired.stream
    stream.remove_reader()
    assert not stream.is_at_end()
    wired.send(b"first", b"second")
    assert not stream.is_at_end()
    assert not stream.is_at_end()
    stream.add_reader(wired.connection._on_readable)
    assert wired.received() == b"firstsecond"
    stream.remove_reader()
    wired.client.close()
    assert stream.is_at_end()


def test_the_client_is_notified_of_the_end(wired: Wired) -> None:
    wired.client.tls.suppress_ragged_eofs = False
    wired.connection.close()
    assert wired.client.recv(100) == b""


def test_the_end_that_comes_with_the_last_request_is_noticed_while_the_socket_is_open(wired: Wired) -> None:
    size = 16_000  # nearly a record, so that the next one is received in the same call
    wired.client.sendall(size.to_bytes(4, "big") + bytes(size))
    with suppress(ssl.SSLWantReadError):
        wired.client.tls._sslobj.shutdown()
    wired.loop.settle()
    assert len(wired.service.frames) == 1
    assert wired.connection.closed
