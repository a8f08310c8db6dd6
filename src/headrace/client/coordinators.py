"""Calls to the coordinators of groups and transactions: finds them, asks again when they move or are not ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable
from headrace.client.link import Link
from headrace.client.versions import Served
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.peer import Disconnected
from headrace.protocol.message import Message
from headrace.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

__all__ = ["CoordinatorKind", "Coordinators"]

_log = logging.getLogger(__name__)

_ELSEWHERE: Final = frozenset({Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE})
_NOT_READY: Final = frozenset({Error.COORDINATOR_LOAD_IN_PROGRESS, Error.UNSTABLE_OFFSET_COMMIT})


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """Of one user, which has its own links: an answer of a coordinator may take long, and holds up what follows it."""

    __slots__ = ("_cluster", "_loop", "_nodes")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[tuple[CoordinatorKind, str], int] = {}

    def close(self) -> None:
        self._cluster.release(self)

    async def call(
        self,
        kind: CoordinatorKind,
        key: str,
        message: Message,
        error_of: Callable[[Any], int],
        *,
        version_max: int | None = None,
        timeout_s: float | None = None,
        patience_s: float | None = None,
    ) -> Any:
        """The coordinator's answer, whatever it says besides "ask elsewhere" and "not yet": those are tried again.

        `timeout_s` is for one answer, `patience_s` for all tries; then it raises what came last.
        """
        settings = self._cluster.settings
        deadline = self._loop.time() + (settings.operation_timeout_s if patience_s is None else patience_s)
        backoff = self._cluster.backoff()
        while True:
            failure: HeadraceError
            try:
                link = await self._link(kind, key)
                response = await link.call(message, timeout_s, version_max)
            except (Disconnected, Unreachable) as error:
                self._nodes.pop((kind, key), None)
                failure = error
            else:
                error_code = Error.of(error_of(response))
                if error_code in _ELSEWHERE:
                    self._nodes.pop((kind, key), None)
                elif error_code is Error.CONCURRENT_TRANSACTIONS:
                    backoff.failures = min(backoff.failures, 1)  # the markers of the last one are on their way
                elif error_code not in _NOT_READY:
                    return response
                failure = Refused(error_code, f"The coordinator of {key} is not ready: {error_code.text}")
            await self._cluster.wait_to_retry(backoff, deadline, failure)

    async def served(self, kind: CoordinatorKind, key: str) -> Served:
        """What the coordinator speaks."""
        link = await self._link(kind, key)
        await link.ready()
        assert link.served is not None
        return link.served

    async def _link(self, kind: CoordinatorKind, key: str) -> Link:
        node_id = self._nodes.get((kind, key))
        if node_id is None:
            node_id = self._nodes[kind, key] = await self._find(kind, key)
        link = self._cluster.link(node_id, self)
        if link is None:
            await self._cluster.refresh()
            link = self._cluster.link(node_id, self)
        if link is None:
            raise Unreachable(f"The coordinator of {key} is broker {node_id}, of which nobody knows the address.")
        return link

    async def _find(self, kind: CoordinatorKind, key: str) -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])  # by lists since Kafka 3.0 (KIP-699)
        response: FindCoordinatorResponse = await self._cluster.call_any(request)
        (found,) = response.coordinators
        error = Error.of(found.error_code)
        if error is Error.NONE:
            return found.node_id
        if error.retriable:
            raise Unreachable(f"{key} has no coordinator yet ({error.name}): {found.error_message or error.text}")
        raise Refused(error, f"{key} can't have a coordinator ({error.name}): {found.error_message or error.text}")
