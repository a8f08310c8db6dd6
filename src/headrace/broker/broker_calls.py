"""How coordinators and partitions meet, wherever in the cluster they are: by messages to a broker (KIP-890).

What is for this node goes to its handler by a call. The answer comes later, or before `send` returns, or never does:
then it is None, and whoever asked tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.protocol.message import Message

Answered: TypeAlias = Callable[[Any], None]
"""Called with the response, or with None when there is none."""


class BrokerCalls:
    __slots__ = ("_node_id", "serves")

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.serves: dict[str, Callable[[Any, Answered], None]] = {}
        """What this node answers itself, by the name of the request."""

    def send(self, broker_id: int, request: Message, answered: Answered) -> None:
        serve = self.serves.get(type(request).__name__)
        if broker_id == self._node_id and serve is not None:
            serve(request, answered)
        else:
            answered(None)
