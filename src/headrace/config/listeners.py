"""Where a node listens, what it tells clients to connect to, and how much it takes from them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Final

from headrace.config.group import Group, integer, long, string, words
from headrace.config.host_name import is_host_name
from headrace.config.setting import INT32_MAX, Change
from headrace.config.topic import MIB, MINUTE_MS
from headrace.errors import Error, Refused
from headrace.named_tuple import NamedTuple

PLAINTEXT: Final = "PLAINTEXT"
SECURITY_PROTOCOLS: Final = {PLAINTEXT: 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""By Kafka's numbers."""


class ListenerAddress(NamedTuple):
    """`NAME://host:port` as it is written: an empty host is every address of the machine."""

    name: str
    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        """All addresses of the machine: to listen on, and nothing that a client could connect to."""
        return self.host in ("", "*") or is_unspecified(self.host)

    @property
    def ip_version(self) -> int:
        """4 or 6, or 0 for a name and for all addresses, which are of both."""
        if self.is_wildcard:
            return 0
        if ":" in self.host:
            return 6
        return 4 if self.host.count(".") == 3 and self.host.replace(".", "").isdigit() else 0

    def __str__(self) -> str:
        return f"{self.name}://{host_and_port(self.host, self.port)}"


def is_unspecified(host: str) -> bool:
    """Whether the system reads it as 0.0.0.0 or ::, in any of their spellings: 0, 0x0, 000.0, [::0]."""
    host = host.lower()
    if ":" in host:
        return not host.partition("%")[0].replace(":ffff:", ":", 1).strip("0:.")
    numbers = [number.removeprefix("0x") for number in host.split(".")]
    return len(numbers) <= 4 and all(number and not number.strip("0") for number in numbers)


def host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listener(text: str, setting: str) -> ListenerAddress:
    """Raises Refused with what is wrong with the text."""
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not name or not separator or not colon or not port.isascii() or not port.isdigit():
        raise Refused(
            Error.INVALID_CONFIG,
            f"{setting} has '{text}', and a listener is written NAME://host:port, as in PLAINTEXT://127.0.0.1:9092.",
        )
    if len(port) > 5 or int(port) > 0xFFFF:
        raise Refused(Error.INVALID_CONFIG, f"{setting} has '{text}', and the highest port is 65535.")
    is_in_brackets = host.startswith("[") and host.endswith("]")
    if is_in_brackets:
        host = host[1:-1]
    if host not in ("", "*") and not is_host_name(host):
        raise Refused(Error.INVALID_CONFIG, f"{setting} has '{text}', and '{host}' is no name of a host.")
    if ":" in host and not is_in_brackets:
        raise Refused(
            Error.INVALID_CONFIG, f"{setting} has '{text}': an IPv6 address stands in brackets, as in [::1]:9092."
        )
    return ListenerAddress(name.upper(), host, int(port))


class ListenerConfig(Group):
    """Where clients connect, and the limits that hold for each of them."""

    listeners: tuple[str, ...] = words(
        default=("PLAINTEXT://127.0.0.1:9092",),
        kafka="Kafka's default is PLAINTEXT://:9092, open to the network without any security.",
        doc="Where the node listens: NAME://host:port, several separated by commas, each name once, and each port once "
        "or for an IPv4 address and an IPv6 address. An empty host, 0.0.0.0 or [::] is every address of the machine, "
        "of IPv4 and of IPv6; * is none. Port 0 is any free port.",
    )
    advertised_listeners: tuple[str, ...] = words(
        default=(),
        doc="What clients are told to connect to, by the name of the listener that they asked. Unset, it is the "
        "address of the listener, or the name of the machine where that listens on every address.",
    )
    listener_security_protocol_map: tuple[str, ...] = words(
        default=("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        doc="The security protocol of each listener's name, as NAME:PROTOCOL. PLAINTEXT is the one that is served.",
    )
    inter_broker_listener_name: str = string(
        default="",
        why="A cluster has one node, which talks to nobody but clients.",
        doc="The listener that brokers use among themselves; unset, it is the one of the inter-broker protocol.",
    )
    max_connections: int = integer(
        default=INT32_MAX,
        least=0,
        change=Change.CLUSTER,
        kafka="Kafka lets who comes beyond it wait to be accepted.",
        doc="The most connections of the node at one time, over all of its listeners. Beyond it, a new one is closed "
        "at once.",
    )
    max_connections_per_ip: int = integer(
        default=INT32_MAX,
        least=0,
        change=Change.CLUSTER,
        doc="The most connections from one address at one time, over all of the node's listeners. Beyond it, a new one "
        "is closed at once.",
    )
    max_connections_per_ip_overrides: str = string(
        default="",
        change=Change.CLUSTER,
        doc="Other limits for some addresses, as address:count, separated by commas.",
    )
    connections_max_idle_ms: int = long(
        default=10 * MINUTE_MS,
        least=1,
        doc="How long a connection may be silent before it is closed.",
    )
    connections_max_stalled_ms: int = long(
        default=MINUTE_MS,
        least=1,
        kafka="Kafka has no such limit: its connections.max.idle.ms is what ends them.",
        doc="How long a client may leave its replies unread, or stop in the middle of a request, before its "
        "connection is closed.",
    )
    connections_max_requests_in_flight: int = integer(
        default=1000,
        least=1,
        kafka="Kafka takes the next request of a connection when it has answered the one before.",
        doc="The most requests of one connection that are being served. Beyond it, no more are read from it.",
    )
    queued_max_request_bytes: int = long(
        default=512 * MIB,
        least=1,
        also=(-1,),
        kafka="Kafka's default is -1, without a limit.",
        doc="The most memory for requests that have not arrived whole, over all connections: half of it for those "
        "above 2 MiB, half for the others. Beyond it, connections wait to be read from, and one of whose request less "
        "than a thirtieth comes in 2 seconds is closed. -1 is without a limit.",
    )
    connections_max_reply_bytes: int = integer(
        default=4 * MIB,
        least=1,
        kafka="Kafka sends one reply of a connection at a time, of any size.",
        doc="The most bytes of replies that wait for a client to read them, before no more requests are read from it.",
    )

    def check(self) -> None:
        self.connections_by_address()
        addresses = self.addresses()
        if not addresses:
            raise Refused(
                Error.INVALID_CONFIG, "listeners is empty; a node needs one, as in PLAINTEXT://127.0.0.1:9092."
            )
        _require_distinct("listeners", addresses)
        _require_ports_of_their_own(addresses)
        for address in addresses:
            if address.host == "*":  # every address to some systems, and to Kafka a name that nobody has
                raise Refused(
                    Error.INVALID_CONFIG,
                    f"listeners has '{address}', and * is no host; for every address of the machine write 0.0.0.0.",
                )
            self.security_protocol(address.name)
        advertised = self.advertised()
        _require_distinct("advertised.listeners", advertised)
        for address in advertised:
            if address.is_wildcard:
                raise Refused(
                    Error.INVALID_CONFIG,
                    f"advertised.listeners has '{address}', and no client can connect to that; name the machine.",
                )
            if address.name not in {listener.name for listener in addresses}:
                raise Refused(
                    Error.INVALID_CONFIG,
                    f"advertised.listeners has {address.name}, and listeners has not: give both the same names.",
                )

    def connections_by_address(self) -> dict[str, int]:
        """The limits of addresses that have their own. Raises Refused."""
        limits = {}
        for text in filter(None, (word.strip() for word in self.max_connections_per_ip_overrides.split(","))):
            address, colon, count = text.rpartition(":")
            if not address or not colon or not count.isascii() or not count.isdigit():
                raise Refused(
                    Error.INVALID_CONFIG,
                    f"max.connections.per.ip.overrides has '{text}', and takes address:count, as in 127.0.0.1:200.",
                )
            limits[address.strip("[]")] = int(count)
        return limits

    def addresses(self) -> list[ListenerAddress]:
        return [parse_listener(text, "listeners") for text in self.listeners]

    def advertised(self) -> list[ListenerAddress]:
        return [parse_listener(text, "advertised.listeners") for text in self.advertised_listeners]

    def security_protocol(self, name: str) -> int:
        """Of a listener, by Kafka's numbers. Raises Refused for a name without one, and for what is not served."""
        protocols = dict(text.upper().partition(":")[::2] for text in self.listener_security_protocol_map)
        if name not in protocols:
            raise Refused(
                Error.INVALID_CONFIG,
                f"listeners has {name}, and listener.security.protocol.map has not; add {name}:PLAINTEXT to it.",
            )
        if protocols[name] not in SECURITY_PROTOCOLS:
            known = ", ".join(SECURITY_PROTOCOLS)
            raise Refused(
                Error.INVALID_CONFIG, f"listener.security.protocol.map has {name}:{protocols[name]}; it knows {known}."
            )
        if protocols[name] != PLAINTEXT:
            raise Refused(
                Error.INVALID_CONFIG,
                f"listeners has {name}, for which listener.security.protocol.map has {protocols[name]}, and PLAINTEXT "
                "is all that is served yet.",
            )
        return SECURITY_PROTOCOLS[protocols[name]]


def _require_distinct(setting: str, addresses: Iterable[ListenerAddress]) -> None:
    names = [address.name for address in addresses]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Refused(Error.INVALID_CONFIG, f"{setting} has the name {twice} more than once; give each its own.")


def _require_ports_of_their_own(addresses: Iterable[ListenerAddress]) -> None:
    """As Kafka has it: two share a port when one has an address of IPv4, and the other one of IPv6."""
    for first, second in combinations(addresses, 2):
        if first.port == second.port != 0 and {first.ip_version, second.ip_version} != {4, 6}:
            raise Refused(
                Error.INVALID_CONFIG,
                f"listeners has {first} and {second}, which share port {first.port}; give each a port of its own.",
            )
