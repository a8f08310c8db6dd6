"""Replies to Produce that are not ready when their request has been handled.

They wait until what was appended counts, and for batches that are held: those that something must be done for before
they go into the log, or that wait behind such ones (see `replica.held_appends`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.errors import Error, Refused
from headrace.net.connection import Connection, Slot
from headrace.protocol import messages as m
from headrace.protocol.frame import Request, write_response
from headrace.replica.held_appends import Turn
from headrace.replica.partition import Partition
from headrace.replica.waits import Wait
from headrace.storage.append import Appended, Prepared
from headrace.storage.verification import Verification

if TYPE_CHECKING:
    from headrace.broker.produce import Produce

    Answer = m.ProduceResponse.PartitionProduceResponse
    Waiting = tuple[Partition, Appended, Answer]
    """What was appended and does not count yet, and its part of the reply."""

WAIT_MS_MIN: Final = 1000
"""What has been appended gets this long to reach the disk, whatever timeout_ms says. A time-out below what a sync takes
can't be meant, and a producer without idempotence answers it with the same records again."""


class HeldBatch:
    """One partition's batch that is not appended when it comes, with a copy of its bytes.

    It takes its turn when it is made. Whatever must be done before the append says so by `need`, between the making
    and `begin`. It is appended when all that was needed is done, and in its turn; or refused then, when one said so.
    """

    __slots__ = (
        "_append",
        "_needs",
        "_refused",
        "_turn",
        "answer",
        "identity",
        "on_verified",
        "partition",
        "prepared",
        "records",
        "verification",
    )

    def __init__(self, partition: Partition, records: memoryview | None, answer: Answer) -> None:
        self.partition = partition
        self.records = b"" if records is None else bytes(records)
        self.answer = answer
        self.prepared: Prepared | None = None
        self.identity: tuple[int, int] | None = None
        """Producer id and epoch of a batch of a transaction."""
        self.verification: Verification | None = None
        """What must have come out well, when its transaction is not open yet."""
        self.on_verified: Callable[[Refused | None], None] | None = None
        """Set where the coordinator is to be asked for this batch."""
        self._needs = 1
        self._refused: Refused | None = None
        self._append: Callable[[HeldBatch], None] | None = None
        self._turn: Turn = partition.hold(self._go)

    @property
    def held_bytes(self) -> int:
        """What it takes of the memory for requests: its copy, and what becomes of it."""
        return 2 * len(self.records)

    def need(self) -> Callable[[Refused | None], None]:
        """One more thing is to be done: call what this returns, once and on the loop, when it is, or with why not."""
        self._needs += 1
        return self._done

    def begin(self, append: Callable[[HeldBatch], None]) -> None:
        """All that is needed is known. `append` may be called before this returns."""
        self._append = append
        self._done(None)

    def require(self) -> None:
        """Raises Refused when something that was needed could not be done, or its transaction has ended meanwhile."""
        if self._refused is not None:
            raise self._refused
        if self.identity is not None:
            self.partition.log.producers.require_verified(*self.identity, self.verification)

    def _done(self, refused: Refused | None) -> None:
        if refused is not None and self._refused is None:
            self._refused = refused
        self._needs -= 1
        if not self._needs:
            self._turn.release()

    def _go(self) -> None:
        assert self._append is not None
        self._append(self)


class PendingReply:
    """Sent when all that it waits for has come, or when its time is over. With acks=0 nothing is sent."""

    __slots__ = ("_connection", "_count", "_has_errors", "_produce", "_reply", "_request", "_slot", "_timer")

    def __init__(
        self,
        produce: Produce,
        connection: Connection,
        request: Request,
        reply: m.ProduceResponse,
        has_errors: bool,
    ) -> None:
        self._produce = produce
        self._connection = connection
        self._slot: Slot | None = connection.reserve()
        self._request = request
        self._reply = reply
        self._has_errors = has_errors
        self._count = 0
        self._timer: Wait | None = None

    def wait_for(self, waiting: list[Waiting], held: list[HeldBatch]) -> None:
        body: m.ProduceRequest = self._request.body
        body.topic_data = []  # views of a frame that is not ours any more
        self._count = len(waiting) + len(held)
        self._produce.waiting += 1
        if body.acks != 0:
            self._timer = self._produce.waits.after_ms(max(body.timeout_ms, WAIT_MS_MIN), self._timed_out)
        for part in held:
            part.answer.error_code = Error.REQUEST_TIMED_OUT  # until it is known better
        for partition, appended, answer in waiting:
            self._wait(partition, appended, answer)
        if held:
            self._connection.listener.budget.hold(sum(part.held_bytes for part in held))
        for part in held:
            part.begin(self._append)

    def _wait(self, partition: Partition, appended: Appended, answer: Answer) -> None:
        answer.error_code = Error.REQUEST_TIMED_OUT
        partition.when_acknowledged(appended, self._request.body.acks, partial(self._reached, answer))

    def _append(self, held: HeldBatch) -> None:
        """It is its turn. Whether the reply has been sent meanwhile does not matter: the client does not know."""
        waiting: list[Waiting] = []
        self._connection.listener.budget.give_back(held.held_bytes)
        if not self._produce.append_held(held, self._connection, self._request, self._reply, waiting):
            self._has_errors = True
        if waiting:
            self._wait(*waiting[0])
        else:
            self._one_less()

    def _reached(self, answer: Answer, error: Error) -> None:
        if self._slot is None:
            return
        answer.error_code = error
        if error:
            answer.error_message = error.text
            self._has_errors = True
            self._produce.errors[error] = self._produce.errors.get(error, 0) + 1
        self._one_less()

    def _one_less(self) -> None:
        self._count -= 1
        if not self._count and self._slot is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._send()
            if not self._has_errors:
                self._produce.give_back(self._reply)

    def _timed_out(self) -> None:
        if self._slot is not None:
            errors = self._produce.errors
            errors[Error.REQUEST_TIMED_OUT] = errors.get(Error.REQUEST_TIMED_OUT, 0) + self._count
            self._send()

    def _send(self) -> None:
        slot, self._slot = self._slot, None
        assert slot is not None
        self._produce.waiting -= 1
        if self._request.body.acks:
            slot.fill(write_response(self._reply, self._request.version, self._request.correlation_id))
            return
        slot.fill([])
        if self._has_errors:
            self._connection.close()
