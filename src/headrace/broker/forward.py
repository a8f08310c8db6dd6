"""Requests that the controller decides: any broker hands them on, over the channel."""

from __future__ import annotations

from typing import Final, Protocol

from headrace.errors import Error, Refused
from headrace.metadata.refusals import refusal
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

_TIMEOUT_MS: Final = 60_000
"""Of a request that does not say."""
_TIMEOUT_MAX_MS: Final = 300_000
_ELECTION_ERROR_VERSION: Final = 1
"""From this version of ElectLeaders on, there is an error for all partitions together."""
_DIRECTORIES_VERSION: Final = 2
"""From this version of DescribeQuorum on, there are directories, and where voters listen (KIP-853)."""
_NO_DIRECTORY: Final = bytes(16)


class Channel(Protocol):
    """The way to the active controller. The reply comes when what it says is in the image of this node."""

    async def call(self, request: Message, timeout_s: float) -> Message:
        """Raises Refused when there is no controller, or no answer in time."""


class Forward:
    """`handle` is the handler of an API whose refusals `metadata.refusals` knows."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def handle(self, connection: Connection, request: Request) -> Message:
        body = request.body
        try:
            response = await self._channel.call(body, _seconds(getattr(body, "timeout_ms", _TIMEOUT_MS)))
        except Refused as refused:
            response = refusal(body, refused)
        return fitted(response, request.version)


def fitted(response: Message, version: int) -> Message:
    """Without what the first versions of an API have no room for, and would not let be left out."""
    if isinstance(response, m.ElectLeadersResponse) and version < _ELECTION_ERROR_VERSION:
        response.error_code = Error.NONE
    elif isinstance(response, m.DescribeQuorumResponse) and version < _DIRECTORIES_VERSION:
        response.nodes = []
        for topic in response.topics:
            for partition in topic.partitions:
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = _NO_DIRECTORY
    return response


def _seconds(timeout_ms: int) -> float:
    return min(max(timeout_ms, 0), _TIMEOUT_MAX_MS) / 1000
