"""ListTransactions and DescribeTransactions: what administrators see of the transactions coordinated here (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from headrace.broker.slot_reply import SlotReply
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import Outcome, Reply
from headrace.coordinator.transactions.responses import described_error
from headrace.coordinator.transactions.shard import TransactionShard
from headrace.coordinator.transactions.states import STATE_OF_TEXT
from headrace.coordinator.transactions.views import Filter
from headrace.errors import Error
from headrace.metrics.requests import ErrorCounts
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message
from headrace.storage.workers import Workers

PATTERN_CHARACTERS_MAX: Final = 10_000
PATTERN_BYTES_MAX: Final = 1 << 19
"""Of a compiled pattern: more takes tenths of a second to compile."""

Described = m.DescribeTransactionsResponse.TransactionState
Listed = m.ListTransactionsResponse.TransactionState


class TransactionViews:
    __slots__ = ("_describe_errors", "_list_errors", "_matchers", "_runtime")

    def __init__(self, runtime: Runtime[TransactionShard], matchers: Workers, errors: ErrorCounts) -> None:
        self._runtime = runtime
        self._matchers = matchers
        self._list_errors = errors["ListTransactions"]
        self._describe_errors = errors["DescribeTransactions"]

    def list(self, connection: Connection, request: Request) -> m.ListTransactionsResponse | None:
        body: m.ListTransactionsRequest = request.body
        indexes = self._runtime.indexes()
        if any(self._runtime.refusal(index) is Error.COORDINATOR_LOAD_IN_PROGRESS for index in indexes):
            return m.ListTransactionsResponse(error_code=Error.COORDINATOR_LOAD_IN_PROGRESS)
        states = {name: STATE_OF_TEXT.get(name) for name in body.state_filters}
        response = m.ListTransactionsResponse(
            unknown_state_filters=[name for name, state in states.items() if state is None]
        )
        wanted = Filter(
            states=[state for state in states.values() if state is not None] if states else None,
            producer_ids=frozenset(body.producer_id_filters) if body.producer_id_filters else None,
            open_for_ms=body.duration_filter if body.duration_filter >= 0 else None,
        )
        is_named = None
        if body.transactional_id_pattern:
            is_named = _pattern(body.transactional_id_pattern)
            if is_named is None:
                return m.ListTransactionsResponse(error_code=Error.INVALID_REGULAR_EXPRESSION)
        if not indexes:
            return response
        slot = SlotReply(connection, request, _refused_list, self._list_errors)
        named = None if is_named is None else _Named(slot, is_named, self._matchers)
        reply = _Listing(named or slot, response, len(indexes))
        for index in indexes:
            self._runtime.ask_shard(index, partial(_list, wanted, reply), reply)
        return None

    def describe(self, connection: Connection, request: Request) -> m.DescribeTransactionsResponse | None:
        body: m.DescribeTransactionsRequest = request.body
        if not body.transactional_ids:
            return m.DescribeTransactionsResponse()
        gathered = _Describing(
            SlotReply(connection, request, _refused_describe, self._describe_errors), len(body.transactional_ids)
        )

        def asks() -> Iterator[None]:
            for number, transactional_id in enumerate(body.transactional_ids):
                reply = _One(gathered, number, transactional_id)
                if transactional_id:
                    self._runtime.ask(transactional_id, partial(_describe, transactional_id, reply), reply)
                else:
                    reply.refuse(Error.INVALID_REQUEST)
                yield

        self._runtime.ask_many(asks(), len(body.transactional_ids))
        return None


def _list(wanted: Filter, reply: Reply, shard: TransactionShard, now_ms: int) -> Outcome:
    response = m.ListTransactionsResponse(transaction_states=list(shard.listed(wanted, now_ms)))
    return Outcome(replies=[(reply, response)])


def _describe(transactional_id: str, reply: Reply, shard: TransactionShard, now_ms: int) -> Outcome:
    return shard.describe(transactional_id, reply, now_ms)


def _pattern(text: str) -> Callable[[str], object] | None:
    """Matches whole names, in time that grows with their length only; None when it can't be read."""
    import re2  # a hundredth of a second and a library, which most nodes never need

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    if len(text) > PATTERN_CHARACTERS_MAX:
        return None
    try:
        found: Callable[[str], object] = re2.compile(text, options=options).fullmatch
    except re2.error:
        return None
    return found


class _Named:
    """A reply with those of a list that have such a name. RE2 takes long for some patterns and names, so that they are
    matched away from the loop, and others are served meanwhile."""

    __slots__ = ("_is_named", "_matchers", "_reply")

    def __init__(self, reply: SlotReply, is_named: Callable[[str], object], matchers: Workers) -> None:
        self._reply = reply
        self._is_named = is_named
        self._matchers = matchers

    def __call__(self, response: m.ListTransactionsResponse, /) -> None:
        if not response.transaction_states:
            self._reply(response)
            return
        is_named, states = self._is_named, response.transaction_states

        def done(found: list[Listed] | None, error: BaseException | None) -> None:
            if found is None:
                self._reply.refuse(Error.UNKNOWN_SERVER_ERROR)
            else:
                response.transaction_states = found
                self._reply(response)

        self._matchers.run(lambda: [state for state in states if is_named(state.transactional_id)], done)


class _Listing:
    """A reply that is there when all shards have answered. One that is not this node's any more has nothing to say."""

    __slots__ = ("_left", "_reply", "_response")

    def __init__(
        self, reply: Callable[[m.ListTransactionsResponse], None], response: m.ListTransactionsResponse, count: int
    ) -> None:
        self._reply = reply
        self._response = response
        self._left = count

    def __call__(self, message: Message, /) -> None:
        assert isinstance(message, m.ListTransactionsResponse)
        self._response.transaction_states += message.transaction_states
        self._one_less()

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        if error is not Error.NOT_COORDINATOR:
            self._response.error_code = error
            self._response.transaction_states = []
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            if self._response.error_code:
                self._response.transaction_states = []
            self._reply(self._response)


class _Describing:
    __slots__ = ("_found", "_left", "_reply")

    def __init__(self, reply: SlotReply, count: int) -> None:
        self._reply = reply
        self._found: list[Described] = [Described()] * count
        self._left = count

    def put(self, number: int, found: Described) -> None:
        self._found[number] = found
        self._left -= 1
        if not self._left:
            self._reply(m.DescribeTransactionsResponse(transaction_states=self._found))


class _One:
    __slots__ = ("_gathered", "_number", "_transactional_id")

    def __init__(self, gathered: _Describing, number: int, transactional_id: str) -> None:
        self._gathered = gathered
        self._number = number
        self._transactional_id = transactional_id

    def __call__(self, message: Message, /) -> None:
        assert isinstance(message, Described)
        self._gathered.put(self._number, message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        self(described_error(self._transactional_id, error))


def _refused_list(request: Request, error: Error, text: str | None) -> m.ListTransactionsResponse:
    return m.ListTransactionsResponse(error_code=error)


def _refused_describe(request: Request, error: Error, text: str | None) -> m.DescribeTransactionsResponse:
    body: m.DescribeTransactionsRequest = request.body
    return m.DescribeTransactionsResponse(
        transaction_states=[described_error(found, error) for found in body.transactional_ids]
    )
