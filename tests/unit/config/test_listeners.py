from __future__ import annotations

import pytest

from ottla.config.listeners import Endpoint, ListenerError, parse_endpoints, parse_protocol_map

PLAIN = {"PLAINTEXT": "PLAINTEXT", "INSIDE": "PLAINTEXT", "SSL": "SSL"}


def test_endpoints_are_read() -> None:
    endpoints = parse_endpoints("PLAINTEXT://:9092, inside://[::1]:0", PLAIN, require_distinct_ports=True)
    assert endpoints == [Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092), Endpoint("INSIDE", "PLAINTEXT", "::1", 0)]
    assert endpoints[1].connection_string == "INSIDE://[::1]:0"


@pytest.mark.parametrize(
    "text", ["PLAINTEXT://h:65536", "PLAINTEXT://h:-1", "PLAINTEXT://h:99999999999", "://h:1", "PLAINTEXT://a:b:1"]
)
def test_what_cannot_be_bound_is_refused(text: str) -> None:
    with pytest.raises(ListenerError, match="Error creating broker listeners from"):
        parse_endpoints(text, PLAIN, require_distinct_ports=True)


def test_one_port_may_serve_ipv4_and_ipv6() -> None:
    assert len(parse_endpoints("PLAINTEXT://127.0.0.1:1,SSL://[::1]:1", PLAIN, require_distinct_ports=True)) == 2
    with pytest.raises(ListenerError, match="one needs to be IPv4 and the other IPv6"):
        parse_endpoints("PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1", PLAIN, require_distinct_ports=True)


@pytest.mark.parametrize("text", ["PLAINTEXT", "A=PLAINTEXT"])
def test_a_protocol_map_must_map(text: str) -> None:
    with pytest.raises(ListenerError, match="LISTENER_NAME:SECURITY_PROTOCOL"):
        parse_protocol_map(text)


def test_a_protocol_map_is_read() -> None:
    assert parse_protocol_map(" inside:plaintext , OUTSIDE:SASL_SSL,") == {
        "INSIDE": "PLAINTEXT",
        "OUTSIDE": "SASL_SSL",
    }
