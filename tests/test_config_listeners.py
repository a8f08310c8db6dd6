"""Where a node listens, and what it tells clients."""

from __future__ import annotations

import socket

import pytest

from headrace.config.listeners import ListenerAddress, ListenerConfig, parse_listener
from headrace.errors import Refused

UNSPECIFIED = {"0.0.0.0", "::", "::ffff:0.0.0.0"}
EVERYWHERE = [
    "0.0.0.0",
    "0",
    "00",
    "0.0",
    "0.0.0",
    "0x0",
    "0X00.0",
    "000.000.000.000",
    "::",
    "::0",
    "0::",
    "0:0:0:0:0:0:0:0",
    "0000:0000:0000:0000:0000:0000:0000:0000",
    "::0.0.0.0",
    "::%1",
    "::ffff:0.0.0.0",
    "::FFFF:0:0",
]
SOMEWHERE = [
    "0.0.0.1",
    "1",
    "0x7f000001",
    "10.0.0.0",
    "::1",
    "fe80::",
    "::ffff:127.0.0.1",
    "localhost",
    "o",
    "0.example",
]


def written(host: str) -> str:
    return f"PLAINTEXT://{'[' + host + ']' if ':' in host else host}:9092"


@pytest.mark.parametrize("host", ["", *EVERYWHERE])
def test_every_spelling_of_every_address_is_one_that_no_client_can_connect_to(host: str) -> None:
    address = parse_listener(written(host), "listeners")
    assert address == ListenerAddress("PLAINTEXT", host, 9092)
    assert address.is_wildcard
    with pytest.raises(Refused, match="no client can connect to that; name the machine"):
        ListenerConfig(advertised_listeners=(written(host),)).check()


@pytest.mark.parametrize("host", SOMEWHERE)
def test_an_address_of_the_machine_is_told_as_it_is(host: str) -> None:
    assert not parse_listener(written(host), "listeners").is_wildcard
    ListenerConfig(advertised_listeners=(written(host),)).check()


@pytest.mark.parametrize("host", [*EVERYWHERE, *SOMEWHERE[:7]])
def test_it_is_what_the_system_makes_of_it(host: str) -> None:
    found = {str(info[4][0]) for info in socket.getaddrinfo(host, 0, flags=socket.AI_NUMERICHOST)}
    assert (host in EVERYWHERE) == (found <= UNSPECIFIED)


def test_an_asterisk_is_no_host() -> None:
    with pytest.raises(Refused, match=r"and \* is no host; for every address of the machine write 0\.0\.0\.0\."):
        ListenerConfig(listeners=("PLAINTEXT://*:9092",)).check()
    with pytest.raises(Refused, match="no client can connect to that; name the machine"):
        ListenerConfig(advertised_listeners=("PLAINTEXT://*:9092",)).check()


NAMES = ("A:PLAINTEXT", "B:PLAINTEXT", "C:PLAINTEXT")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "10.0.0.7"),
        ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "[::]"),
        ("127.0.0.1", "[::]"),
        ("", "[::1]"),
        ("[::1]", "[::2]"),
        ("localhost", "[::1]"),
    ],
)
def test_two_listeners_on_one_port_are_refused(first: str, second: str) -> None:
    listeners = (f"A://{first}:9092", f"B://{second}:9092")
    with pytest.raises(Refused) as refused:
        ListenerConfig(listeners=listeners, listener_security_protocol_map=NAMES).check()
    assert refused.value.text == (
        f"listeners has {listeners[0]} and {listeners[1]}, which share port 9092; give each a port of its own."
    )


@pytest.mark.parametrize(
    "listeners",
    [
        ("A://127.0.0.1:9092", "B://127.0.0.1:9093", "C://0.0.0.0:9094"),
        ("A://127.0.0.1:0", "B://127.0.0.1:0", "C://0.0.0.0:0"),
        ("A://127.0.0.1:9092", "B://[::1]:9092"),
        ("A://[fe80::1%1]:9092", "B://10.0.0.7:9092"),
    ],
)
def test_ports_of_their_own_and_one_of_ipv4_and_ipv6_are_taken(listeners: tuple[str, ...]) -> None:
    ListenerConfig(listeners=listeners, listener_security_protocol_map=NAMES).check()


def test_clients_of_two_listeners_may_be_told_one_port() -> None:
    ListenerConfig(
        listeners=("A://127.0.0.1:9092", "B://127.0.0.1:9093"),
        advertised_listeners=("A://a.example:9092", "B://b.example:9092"),
        listener_security_protocol_map=NAMES,
    ).check()


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("B:PLAINTEXT", "listeners has A, and listener.security.protocol.map has not; add A:PLAINTEXT to it."),
        ("A:SSL", "listeners has A, for which listener.security.protocol.map has SSL, and PLAINTEXT is all that"),
        ("A:TLS", "listener.security.protocol.map has A:TLS; it knows PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."),
    ],
)
def test_a_listener_without_a_protocol_that_is_served_is_refused(protocol: str, expected: str) -> None:
    with pytest.raises(Refused) as refused:
        ListenerConfig(listeners=("A://127.0.0.1:9092",), listener_security_protocol_map=(protocol,)).check()
    assert refused.value.text.startswith(expected)
