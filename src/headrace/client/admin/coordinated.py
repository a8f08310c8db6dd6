"""Calls to the coordinators of groups and transactions: finds them, asks each once for all of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from headrace.client.admin.calls import Calls, check, refused
from headrace.client.arguments import instance
from headrace.client.coordinators import CoordinatorKind
from headrace.client.errors import Unreachable
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.peer import Disconnected
from headrace.protocol.message import Message
from headrace.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

__all__ = ["CoordinatedCalls"]

Found = TypeVar("Found")
_AGAIN: Final = frozenset(
    {
        Error.NOT_COORDINATOR,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.CONCURRENT_TRANSACTIONS,
        Error.REBALANCE_IN_PROGRESS,
    }
)


class CoordinatedCalls(Calls):
    __slots__ = ()

    async def _lists(
        self, request: Message, what: str, failures: dict[int, HeadraceError] | None
    ) -> list[tuple[int, Any]]:
        """What the coordinators of each broker list. One that does not answer is noted in `failures`, or raises."""
        if failures is not None:
            instance("failures", failures, dict, "a dict to note failures in, or None")

        async def ask(broker_id: int) -> Any:
            try:
                response = await self._cluster.call(request, broker_id)
                if Error.of(response.error_code) is Error.COORDINATOR_NOT_AVAILABLE:
                    return None  # there has never been one
                check(response.error_code, None, f"Broker {broker_id} does not tell its {what}")
            except HeadraceError as error:
                if failures is None:
                    raise
                failures[broker_id] = error
                return None
            return response

        answers = await self._at_brokers(None, ask)
        return [(broker_id, answer) for broker_id, answer in answers.items() if answer is not None]

    async def _at_coordinators(
        self,
        kind: CoordinatorKind,
        keys: Sequence[str],
        ask: Callable[[list[str]], Message],
        results: Callable[[Any], Iterable[tuple[str, int, str | None, Found]]],
        what: str,
        *,
        version_max: int | None = None,
    ) -> dict[str, Found]:
        """Ask for groups or transactional ids, again while their coordinators move or load. Refused where one says no.

        `results` takes a response apart: key, error code, text, result; `what` is said of the key, as "is not told".
        """
        cluster = self._cluster
        backoff = cluster.backoff()
        deadline = asyncio.get_running_loop().time() + cluster.settings.operation_timeout_s
        found: dict[str, Found] = {}
        while True:
            failures: dict[str, HeadraceError] = {}
            nodes = await self._coordinators(kind, [key for key in keys if key not in found], failures)

            async def ask_one(node_id: int, its: list[str], failures: dict[str, HeadraceError]) -> None:
                try:
                    link = cluster.link(node_id)
                    if link is None:
                        await cluster.refresh()
                        link = cluster.link(node_id)
                    if link is None:
                        raise Unreachable(f"Broker {node_id} is gone.")
                    response = await link.call(ask(its), version_max=version_max)
                except (Disconnected, Unreachable) as error:
                    failures |= dict.fromkeys(its, error)
                    return
                for key, code, text, result in results(response):
                    if code:
                        failures[key] = refused(Error.of(code), text, f"{key} {what}")
                    else:
                        found[key] = result

            await asyncio.gather(*(ask_one(node_id, its, failures) for node_id, its in nodes.items()))
            for failure in failures.values():
                if isinstance(failure, Refused) and failure.error not in _AGAIN:
                    raise failure
            if not failures:
                return {key: found[key] for key in keys if key in found}
            await cluster.wait_to_retry(backoff, deadline, next(iter(failures.values())))

    async def _coordinators(
        self, kind: CoordinatorKind, keys: Sequence[str], failures: dict[str, HeadraceError]
    ) -> dict[int, list[str]]:
        """The keys by the brokers that coordinate them (KIP-699)."""
        if not keys:
            return {}
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
        response: FindCoordinatorResponse = await self._cluster.call_any(request)
        nodes: dict[int, list[str]] = {}
        for answer in response.coordinators:
            if answer.error_code:
                text = f"{answer.key} has no coordinator"
                failures[answer.key] = refused(Error.of(answer.error_code), answer.error_message, text)
            else:
                nodes.setdefault(answer.node_id, []).append(answer.key)
        return nodes
