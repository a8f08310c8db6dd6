"""What can be the name of a host, and where one that can't be is refused."""

from __future__ import annotations

import contextlib
import socket

import pytest

from headrace.client import WrongArgument
from headrace.client.cluster import parse_addresses
from headrace.config.host_name import is_host_name
from headrace.config.http import HttpConfig
from headrace.config.listeners import ListenerConfig
from headrace.errors import Refused

NAMES = ["localhost", "kafka-1.example.net", "kafka.example.net.", "broker_1", "127.0.0.1", "0", "::1", "fe80::1%eth0"]
NAMES += ["::ffff:127.0.0.1", "bücher.example", "a" * 63 + ".net"]
NO_NAMES = [
    "kafka..example.net",
    ".example.net",
    ".",
    "a" * 64 + ".example.net",
    "é..",
    "\udcff",
    "a b",
    "a\0b",
    "",
    "*",
]
NO_NAMES += ["a\0b", "http://kafka", ".".join(["a" * 60] * 5)]


@pytest.mark.parametrize("text", NAMES)
def test_a_name_or_an_address_can_be_a_host(text: str) -> None:
    assert is_host_name(text)


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_can_be_no_host(text: str) -> None:
    assert not is_host_name(text)


@pytest.mark.parametrize("text", [*NAMES, *NO_NAMES])
def test_a_name_that_can_be_one_never_breaks_the_codec_that_looks_it_up(text: str) -> None:
    if is_host_name(text):
        with contextlib.suppress(socket.gaierror):
            socket.getaddrinfo(text, 9092, flags=socket.AI_NUMERICHOST)


@pytest.mark.parametrize("text", [text for text in NO_NAMES if text not in ("", "*")])
def test_no_listener_is_at_what_can_be_no_host(text: str) -> None:
    with pytest.raises(Refused, match=r"^listeners has '.*' is no name of a host"):
        ListenerConfig(listeners=(f"PLAINTEXT://{text}:9092",)).check()
    with pytest.raises(Refused, match=r"^advertised.listeners has '.*' is no name of a host"):
        ListenerConfig(advertised_listeners=(f"PLAINTEXT://{text}:9092",)).check()
    with pytest.raises(Refused, match=r"^http.listen is '.*', and it must be host:port"):
        HttpConfig(http_listen=f"{text}:9644").check()
    with pytest.raises(WrongArgument, match="is no name of a host|UTF-8"):
        parse_addresses(f"{text}:9092")
