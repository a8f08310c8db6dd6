"""A producer whose records become visible together, with offsets of groups that it read, or not at all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from headrace.client.arguments import flag, seconds, text, whole
from headrace.client.cluster import Cluster
from headrace.client.errors import Closed, Fenced
from headrace.client.lane import Produced
from headrace.client.producer import Producer
from headrace.client.transaction import GroupMember, OffsetToCommit, Prepared, State, Transaction
from headrace.errors import HeadraceError
from headrace.protocol.kernel_types import Buffer, Headers

__all__ = ["TransactionalProducer"]

ABORT_SECONDS = 5.0


class TransactionalProducer(Producer):
    """Made by `Client.transactional_producer`.

        async with producer.transaction():
            producer.send_soon("out", value)
            await producer.send_offsets({("in", 0): 42}, GroupMember("a-group"))

    commits at its end, and aborts when something in it fails. A new producer of the same transactional id fences this
    one: its calls raise `Fenced`. `MustAbort` says that the transaction can only be aborted, and tried again.
    """

    __slots__ = ("_transaction",)

    def __init__(
        self,
        cluster: Cluster,
        chance: random.Random,
        now_ms: Callable[[], int],
        closed: Callable[[Producer], None] = lambda _: None,
        *,
        transactional_id: str,
        transaction_timeout_ms: int = 60_000,
        two_phase: bool = False,
        **settings: Any,
    ) -> None:
        """With `two_phase`, transactions have no time-out, and can be prepared (KIP-939)."""
        text("transactional_id", transactional_id)
        whole("transaction_timeout_ms", transaction_timeout_ms, 1)
        flag("two_phase", two_phase)
        super().__init__(cluster, chance, now_ms, closed, transactional_id=transactional_id, **settings)
        self._transaction = Transaction(
            cluster, self._sender, transactional_id, transaction_timeout_ms, two_phase=two_phase
        )
        self._sender.transaction = self._transaction

    async def begin(self) -> None:
        """Begin a transaction. The first one takes over the transactional id, and aborts what its last user left."""
        self._check_open()
        await self._transaction.begin()

    async def commit(self) -> None:
        """Wait for all acknowledgements, then make everything visible.

        `MustAbort`: abort, and nothing of it is visible. `Uncertain`: ask again, to commit or to hear how it ended.
        """
        self._check_open()
        if self._transaction.state is State.OPEN:
            await self.flush()
        await self._transaction.end(commit=True)

    async def abort(self) -> None:
        """Nothing of the transaction becomes visible. What was not sent yet is not sent."""
        self._check_open()
        if self._transaction.state in (State.OPEN, State.BROKEN):
            self._transaction.give_up()
            await self.flush()
        await self._transaction.end(commit=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin, then commit; abort when what is in it raises, or when it can't be committed."""
        await self.begin()
        try:
            yield
            await self.commit()
        except BaseException:
            if self._transaction.state in (State.OPEN, State.BROKEN):
                try:
                    await self.abort()
                except Fenced:
                    raise  # which is more than what failed before it
                except HeadraceError:
                    pass  # the next `begin` aborts it
            raise

    async def send_offsets(self, offsets: Mapping[tuple[str, int], OffsetToCommit | int], group: GroupMember) -> None:
        """Commit offsets of a group with the transaction: the next offsets to read."""
        self._check_open()
        await self._transaction.send_offsets(offsets, group)

    async def prepare(self) -> Prepared:
        """Wait for all acknowledgements; from then on it can be committed, whatever happens to this producer."""
        self._check_open()
        await self.flush()
        return await self._transaction.prepare_to_commit()

    async def recover(self) -> Prepared | None:
        """Instead of the first `begin`, after a restart: what was prepared, to be committed or aborted; None if not."""
        self._check_open()
        return await self._transaction.recover()

    def send_soon(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Produced]:
        self._transaction.check_sendable()
        return super().send_soon(topic, value, key, headers, partition, timestamp_ms)

    async def close(self, timeout_s: float | None = None) -> None:
        """Abort what is open, unless it is prepared."""
        if timeout_s is not None:
            seconds("timeout_s", timeout_s, zero=True)
        try:
            if self._transaction.state in (State.OPEN, State.BROKEN):
                with suppress(HeadraceError, TimeoutError):
                    async with asyncio.timeout(ABORT_SECONDS if timeout_s is None else timeout_s):
                        await self.abort()
        except (Exception, asyncio.CancelledError):
            await self._give_up(0)
            raise
        await self._give_up(timeout_s)

    async def _give_up(self, timeout_s: float | None) -> None:
        await super().close(timeout_s)
        await self._transaction.close()

    def _check_open(self) -> None:
        if self._is_closing:
            raise Closed("The producer is closed: make another one.")
