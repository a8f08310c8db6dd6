"""The address of a server: taken first, and listened on when the server is ready.

The sockets are made here and not by the loop, for two reasons. Two may take one address while neither listens, and
uvloop tells nobody when the second one then can't: its server would be deaf. And a loop's :: is without IPv4.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from headrace.config.listeners import host_and_port, is_unspecified

PORT_TRIES: Final = 20
"""For a port that is to be free at each of several addresses."""
NO_SUCH_ADDRESS: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
"""What a machine says without that address, or without its protocol, as IPv6 is switched off in many a container."""

NewSocket = Callable[[int, int, int], socket.socket]
"""Of a family, a type and a protocol."""
Address = tuple[int, tuple[Any, ...]]
"""A family, and where a socket of it is bound."""


class Binding:
    """The sockets of one server, which share a port. Nobody can connect before `serve`."""

    __slots__ = ("_servers", "_sockets", "host", "port")

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []
        host, port = sockets[0].getsockname()[:2]
        self.host, self.port = str(host), int(port)

    @classmethod
    async def take(cls, host: str, port: int) -> Binding:
        """All the addresses of a host, or of the machine when it is empty or unspecified; port 0 is any free one.

        Raises OSError.
        """
        loop = asyncio.get_running_loop()
        new: NewSocket = getattr(loop, "new_socket", socket.socket)  # the simulator has a network of its own
        if not host or is_unspecified(host):
            return cls([everywhere(port, new)])
        # In bytes, because for a string the codec of international names is loaded.
        name = host.encode() if host.isascii() else host
        found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return cls(at_each(dict.fromkeys((info[0], info[4]) for info in found), port, new))

    async def serve(self, protocol: Callable[[], asyncio.BaseProtocol], backlog: int) -> None:
        """Lets clients in. Raises OSError where another server listens by now."""
        for taken in self._sockets:
            taken.listen(backlog)
        loop = asyncio.get_running_loop()
        for taken in self._sockets:
            self._servers.append(await loop.create_server(protocol, sock=taken, backlog=backlog))

    def close(self) -> None:
        """Lets no more clients in."""
        for taken in self._sockets[len(self._servers) :]:
            taken.close()
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        """Until the connections are gone, too."""
        for server in self._servers:
            await server.wait_closed()


def everywhere(port: int, new: NewSocket) -> socket.socket:
    """One socket for all addresses of the machine, IPv4 and IPv6, as Java's are; IPv4 alone where there is no IPv6."""
    try:
        return _bound(socket.AF_INET6, ("::", port), new)
    except OSError as error:
        if error.errno not in NO_SUCH_ADDRESS:
            raise
    return _bound(socket.AF_INET, ("0.0.0.0", port), new)


def at_each(addresses: Iterable[Address], port: int, new: NewSocket) -> list[socket.socket]:
    """A socket at each address that the machine has, of those that a name has. All get one port, any if it is 0."""
    for _ in range(PORT_TRIES - 1 if port == 0 else 0):
        try:
            return _at_each(addresses, port, new)
        except OSError as error:  # what is free at the first address may not be at the next
            if error.errno != errno.EADDRINUSE:
                raise
    return _at_each(addresses, port, new)


def _at_each(addresses: Iterable[Address], port: int, new: NewSocket) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, (host, _, *rest) in addresses:
        try:
            sockets.append(_bound(family, (host, port, *rest), new))
        except OSError as error:
            if error.errno not in NO_SUCH_ADDRESS:
                for taken in sockets:
                    taken.close()
                raise
            missing = error
        else:
            port = port or int(sockets[0].getsockname()[1])
    if missing is not None and not sockets:
        raise missing
    return sockets


def _bound(family: int, address: tuple[Any, ...], new: NewSocket) -> socket.socket:
    # Whoever takes connections from it sends at once what is small, if it says that it is of TCP (asyncio does).
    taken = new(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # What is left of the connections of the life before keeps no address.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.bind(address)
    except BaseException:
        taken.close()
        raise
    return taken


def plain_host(host: str) -> str:
    """Who has connected: an IPv4 address is written as one, though the socket takes IPv6 as well."""
    return host.removeprefix("::ffff:") if "." in host else host


def cannot_listen(error: OSError, host: str, port: int) -> str:
    """Why, in a sentence, and what to do."""
    where = host_and_port(host, port)
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process. Stop it, or choose another port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no address {host}. Use one of its own, 127.0.0.1 or 0.0.0.0."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"listening on port {port} is not permitted. Choose one above 1023."
    return f"can't listen on {where} ({error.strerror or error}). Use an address of this machine."
