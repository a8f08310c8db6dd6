"""Where a node is looked at, and what its clients may tell it of themselves."""

from __future__ import annotations

from typing import Final

from headrace.config.group import Group, integer, string
from headrace.config.host_name import is_host_name
from headrace.config.topic import MIB
from headrace.errors import Error, Refused
from headrace.named_tuple import NamedTuple

AUTO: Final = "auto"
AUTO_HOST: Final = "127.0.0.1"
AUTO_PORT: Final = 9192


class HttpAddress(NamedTuple):
    host: str
    port: int
    may_differ: bool
    """Any other port will do when this one is taken."""


class HttpConfig(Group):
    """The port for metrics and health, and clients' telemetry."""

    http_listen: str = string(
        default=AUTO,
        kafka="Kafka has no such port: its metrics are told by JMX.",
        doc="Where metrics and health are told over HTTP: host:port, or off. Port 0 is any free port. auto is "
        f"{AUTO_HOST}:{AUTO_PORT}, or any free port of {AUTO_HOST} when that one is taken, as by a second node: "
        "`headrace config get --broker ID http.listen` tells which. "
        "There is no password: whoever reaches it sees names of topics and clients.",
    )
    telemetry_max_bytes: int = integer(
        default=MIB, least=1, doc="The most bytes of metrics that a client may push at once (KIP-714)."
    )

    def check(self) -> None:
        self.address()

    def address(self) -> HttpAddress | None:
        """None when there is to be no such port."""
        text = self.http_listen
        if text in ("", "off"):
            return None
        if text == AUTO:
            return HttpAddress(AUTO_HOST, AUTO_PORT, may_differ=True)
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        is_host = not host or is_host_name(host)
        if not colon or not is_host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
            raise Refused(
                Error.INVALID_CONFIG,
                f"http.listen is '{text}', and it must be host:port, as in {AUTO_HOST}:{AUTO_PORT}, or auto, or off.",
            )
        return HttpAddress(host, int(port), may_differ=False)
