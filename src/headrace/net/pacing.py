"""Between two processes of one machine nothing is paced.

BBR, which a system may have as its congestion control, sends by a timer, at the rate that it takes a network to have.
Within a machine there is no network, and the timers take up to a third of the processor that a large reply costs, and
of its speed. So such a connection gets a congestion control that sends what the other side has room for.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

PACED: Final = b"bbr"
"""How the names of those begin that send by a timer."""
UNPACED: Final = (b"cubic", b"reno")
"""The first that the system lets us have: to ask for another than it offers takes a right, or a module."""
_OPTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)  # of Linux


def unpace(transport: asyncio.BaseTransport) -> None:
    """Of a new connection, if both of its ends are on this machine."""
    taken = transport.get_extra_info("socket")
    if _OPTION is None or taken is None or not _is_within_machine(transport):
        return
    try:
        if not taken.getsockopt(socket.IPPROTO_TCP, _OPTION, 16).startswith(PACED):
            return
    except OSError:
        return
    for name in UNPACED:
        try:
            taken.setsockopt(socket.IPPROTO_TCP, _OPTION, name)
        except OSError:
            continue
        return


def _is_within_machine(transport: asyncio.BaseTransport) -> bool:
    here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return bool(here and there and here[0] == there[0])
