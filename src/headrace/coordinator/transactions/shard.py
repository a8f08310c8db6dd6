"""The transaction coordinator: the transactional ids of one partition of `__transaction_state`. PURE.

What is decided of a transaction counts once its record is committed. Then its producer is told, and its markers go to
the partitions that it wrote to; when all of them are written, the shard hears of it and the transaction is complete.
While it is not, whatever its producer asks for next waits here for a moment: Kafka says CONCURRENT_TRANSACTIONS at
once, and the producer pauses for longer than most transactions take. What it asks for meanwhile stands in line behind
that. After a fail-over the markers of what was decided are sent again, by a coordinator of a higher epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from headrace.config.transactions import TransactionConfig
from headrace.coordinator.shard import Outcome, ProducerStamp, Reply, StateRecord, Timers
from headrace.coordinator.transactions.ending import ended, ending_of, needs_producer_id
from headrace.coordinator.transactions.responses import (
    added_result,
    described_error,
    end_error,
    ended_response,
    init_error,
)
from headrace.coordinator.transactions.starting import Start, last_epoch_of, refusal_of, start_of
from headrace.coordinator.transactions.states import AT_REST, Ending, State
from headrace.coordinator.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Identity,
    TopicPartition,
    Transaction,
    id_of,
    key_of,
    record_of,
    transaction_of,
)
from headrace.coordinator.transactions.views import Filter, described, listed
from headrace.errors import Error
from headrace.metadata.delta import Delta
from headrace.metadata.features import TRANSACTION_VERSION
from headrace.metadata.image import Image
from headrace.plain import plain
from headrace.protocol import messages as m
from headrace.protocol.message import Message

WAITING_MAX: Final = 16
"""Requests for one transactional id that wait for its transaction to be complete."""
RECORD_BYTES_MAX: Final = 1_000_000
"""A transaction with more partitions than fit into this can't be written down: no batch may be larger."""
LOOKED_AT_A_STEP: Final = 1_000
"""Transactional ids, of which the old ones are forgotten."""

Respond: TypeAlias = Callable[[Error], Message]
"""Makes the response of a request that only says how it went."""

_ENDING_ERRORS: Final = {
    Ending.UNDER_WAY: Error.CONCURRENT_TRANSACTIONS,
    Ending.INVALID: Error.INVALID_TXN_STATE,
    Ending.FENCED: Error.PRODUCER_FENCED,
}


@plain
class WriteMarkers:
    """The effect that a decision has: every partition of the transaction gets a marker."""

    transactional_id: str
    markers: Identity
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    transaction_version: int


@plain
class _Waiting:
    """A request that is dealt with once the transaction before it is complete."""

    go_on: Callable[[int], Outcome]
    reply: Reply
    respond: Respond


class TransactionShard:
    __slots__ = (
        "_config",
        "_epoch",
        "_is_going_on",
        "_is_watching",
        "_last_epochs",
        "_looking_at",
        "_open",
        "_prepared",
        "_sent_away",
        "_take_producer_id",
        "_timers",
        "_version",
        "_waiting",
        "transactions",
    )

    def __init__(
        self,
        coordinator_epoch: int,
        timers: Timers,
        config: TransactionConfig,
        take_producer_id: Callable[[], int | None],
    ) -> None:
        """The epoch is the leader epoch of the partition. A producer id may not be at hand: then it is None."""
        self.transactions: dict[str, Transaction] = {}
        self._epoch = coordinator_epoch
        self._timers = timers
        self._config = config
        self._take_producer_id = take_producer_id
        self._version = 0
        self._is_going_on = False
        self._is_watching = False
        self._open: dict[str, None] = {}
        self._last_epochs: dict[str, tuple[Identity, int]] = {}
        """The epoch before the one of an identity, as InitProducerId left it: not in the log, as in Kafka."""
        self._sent_away: dict[str, Identity] = {}
        """Who was told to come again with the first partitions of the next transaction, and has begun none since."""
        self._prepared: list[Transaction] = []
        """Found in the log, and to be completed."""
        self._waiting: dict[str, list[_Waiting]] = {}
        self._looking_at: deque[str] = deque()
        """Which are still to be looked at for being old."""

    # ------------------------------------------------------------------------------------------ what the log is made of

    def replay(
        self, key: bytes, value: bytes | None, offset: int, timestamp_ms: int, stamp: ProducerStamp | None
    ) -> None:
        transactional_id = id_of(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._open.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
            self._sent_away.pop(transactional_id, None)
        else:
            self._put(transaction_of(transactional_id, value))

    def replay_end(self, stamp: ProducerStamp, is_commit: bool) -> None:
        """Nobody writes to this topic in a transaction."""

    def _put(self, transaction: Transaction) -> None:
        self.transactions[transaction.transactional_id] = transaction
        if transaction.state is State.ONGOING or transaction.is_prepared:
            self._sent_away.pop(transaction.transactional_id, None)
        if transaction.state is State.ONGOING:
            self._open[transaction.transactional_id] = None
        else:
            self._open.pop(transaction.transactional_id, None)

    def _decide(self, outcome: Outcome, transaction: Transaction) -> None:
        outcome.records.append(record_of(transaction, self._version))

    def settle(self, image: Image, now_ms: int) -> Iterator[None]:
        for transaction in list(self.transactions.values()):
            if transaction.is_prepared:
                self._prepared.append(transaction)
            yield

    def loaded(self, image: Image, now_ms: int) -> Outcome:
        self._version = image.features.get(TRANSACTION_VERSION, 0)
        outcome = Outcome()
        prepared, self._prepared = self._prepared, []
        for transaction in prepared:
            self._mark(outcome, transaction, now_ms)
        if self._open:
            self._watch_open(now_ms)
        self._watch_old(now_ms)
        return outcome

    def image_changed(self, delta: Delta, image: Image, now_ms: int) -> Outcome:
        self._version = image.features.get(TRANSACTION_VERSION, 0)
        return Outcome()

    def unloaded(self, now_ms: int) -> Outcome:
        waiting, self._waiting = self._waiting, {}
        return Outcome(
            replies=[(one.reply, one.respond(Error.NOT_COORDINATOR)) for line in waiting.values() for one in line]
        )

    # ----------------------------------------------------------------------------------------------- a producer starts

    def init_producer_id(self, body: m.InitProducerIdRequest, reply: Reply, now_ms: int) -> Outcome:
        if (error := refusal_of(body, self._config)) is not None:
            return Outcome(replies=[(reply, init_error(error))])
        timeout_ms = NO_TIMEOUT_MS if body.enable_2pc else body.transaction_timeout_ms
        transactional_id = body.transactional_id or ""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            producer_id = self._take_producer_id()
            if producer_id is None:
                return Outcome(replies=[(reply, init_error(Error.COORDINATOR_LOAD_IN_PROGRESS))])
            transaction = Transaction(transactional_id, producer_id)
            return self._initialize(transaction, Identity(producer_id, 0), timeout_ms, reply, now_ms)
        expected = None if body.producer_id == NO_PRODUCER else Identity(body.producer_id, body.producer_epoch)
        start = start_of(transaction, expected, self._last_epoch(transaction), body.keep_prepared_txn)
        client = transaction.client
        match start:
            case Start.LATER:
                return self._wait(
                    transactional_id, lambda now: self.init_producer_id(body, reply, now), reply, init_error, now_ms
                )
            case Start.AFTER_ABORT:
                fenced = self._fenced(transaction, now_ms)
                if fenced is None:
                    return Outcome(replies=[(reply, init_error(Error.COORDINATOR_LOAD_IN_PROGRESS))])
                outcome = self._wait(
                    transactional_id, lambda now: self.init_producer_id(body, reply, now), reply, init_error, now_ms
                )
                self._decide_end(outcome, fenced, now_ms)
                return outcome
            case Start.SAME:
                self._remember(transactional_id, client, expected)
                return self._initialize(transaction, client, timeout_ms, reply, now_ms)
            case Start.NEXT_EPOCH:
                self._remember(transactional_id, client.bumped(), expected)
                return self._initialize(transaction, client.bumped(), timeout_ms, reply, now_ms)
            case Start.NEW_ID | Start.KEPT:
                return self._change_id(transaction, expected, body, timeout_ms, reply, now_ms)
            case error:
                assert isinstance(error, Error)
                return Outcome(replies=[(reply, init_error(error))])

    def _initialize(
        self, transaction: Transaction, client: Identity, timeout_ms: int, reply: Reply, now_ms: int
    ) -> Outcome:
        response = m.InitProducerIdResponse(producer_id=client.producer_id, producer_epoch=client.producer_epoch)
        outcome = Outcome(replies=[(reply, response)])
        self._decide(outcome, transaction.initialized(client, timeout_ms, now_ms))
        return outcome

    def _change_id(
        self,
        transaction: Transaction,
        expected: Identity | None,
        body: m.InitProducerIdRequest,
        timeout_ms: int,
        reply: Reply,
        now_ms: int,
    ) -> Outcome:
        """Another producer id where the epochs are used up, and the transaction that is open where it is kept."""
        before = transaction.client
        client = before.bumped()
        if before.is_exhausted:
            producer_id = self._take_producer_id()
            if producer_id is None:
                return Outcome(replies=[(reply, init_error(Error.COORDINATOR_LOAD_IN_PROGRESS))])
            client = Identity(producer_id, 0)
        self._remember(transaction.transactional_id, client, expected)
        if transaction.state is not State.ONGOING:
            return self._initialize(transaction, client, timeout_ms, reply, now_ms)
        response = m.InitProducerIdResponse(
            producer_id=client.producer_id,
            producer_epoch=client.producer_epoch,
            ongoing_txn_producer_id=transaction.producer_id,
            ongoing_txn_producer_epoch=transaction.producer_epoch,
        )
        outcome = Outcome(replies=[(reply, response)])
        self._decide(outcome, transaction.kept(client, timeout_ms, now_ms))
        return outcome

    def _remember(self, transactional_id: str, client: Identity, expected: Identity | None) -> None:
        """A producer that asks again, because the answer was lost, shows the epoch that it had before (KIP-360)."""
        if expected is not None:
            self._last_epochs[transactional_id] = (client, expected.producer_epoch)
        else:
            self._last_epochs.pop(transactional_id, None)

    def _last_epoch(self, transaction: Transaction) -> int:
        client, epoch = self._last_epochs.get(transaction.transactional_id, (None, NO_EPOCH))
        return epoch if client == transaction.client else last_epoch_of(transaction)

    # -------------------------------------------------------------------------------------------------- partitions join

    def add_partitions(
        self,
        transactional_id: str,
        claimed: Identity,
        partitions: Iterable[TopicPartition],
        client_version: int,
        reply: Reply,
        respond: Respond,
        now_ms: int,
    ) -> Outcome:
        partitions = tuple(partitions)
        transaction = self.transactions.get(transactional_id)
        error = _mismatch(transaction, claimed)
        if transaction is None or error:
            return Outcome(replies=[(reply, respond(error))])
        if transaction.is_prepared or self._has_line(transactional_id):

            def respond_later(error: Error) -> Message:
                if error is Error.CONCURRENT_TRANSACTIONS:
                    self._sent_away[transactional_id] = claimed
                return respond(error)

            return self._wait(
                transactional_id,
                lambda now: self.add_partitions(
                    transactional_id, claimed, partitions, client_version, reply, respond, now
                ),
                reply,
                respond_later,
                now_ms,
            )
        if transaction.is_kept:  # there is nothing to do with it but to end it
            return Outcome(replies=[(reply, respond(Error.INVALID_TXN_STATE))])
        if transaction.state is State.ONGOING and all(partition in transaction.partitions for partition in partitions):
            return Outcome(replies=[(reply, respond(Error.NONE))])
        after = transaction.added(partitions, client_version, now_ms)
        record = record_of(after, self._version)
        if len(record.value or b"") > RECORD_BYTES_MAX:
            return Outcome(replies=[(reply, respond(Error.UNKNOWN_SERVER_ERROR))])
        self._watch_open(now_ms)
        return Outcome(records=[record], replies=[(reply, respond(Error.NONE))])

    def verify_partitions(
        self,
        transactional_id: str,
        claimed: Identity,
        partitions: Iterable[TopicPartition],
        reply: Reply,
        now_ms: int,
    ) -> Outcome:
        """Are these partitions in the producer's transaction? The reply has an error for each."""
        partitions = tuple(partitions)

        def respond(error: Error) -> Message:
            return added_result(transactional_id, dict.fromkeys(partitions, error))

        transaction = self.transactions.get(transactional_id)
        error = _mismatch(transaction, claimed)
        if transaction is None or error:
            return Outcome(replies=[(reply, respond(error))])
        if transaction.is_prepared:
            return self._wait(
                transactional_id,
                lambda now: self.verify_partitions(transactional_id, claimed, partitions, reply, now),
                reply,
                respond,
                now_ms,
            )
        errors = {
            partition: Error.NONE if partition in transaction.partitions else Error.TRANSACTION_ABORTABLE
            for partition in partitions
        }
        return Outcome(replies=[(reply, added_result(transactional_id, errors))])

    # ----------------------------------------------------------------------------------------------- a transaction ends

    def end(self, body: m.EndTxnRequest, client_version: int, reply: Reply, now_ms: int) -> Outcome:
        """The producer decides."""
        transactional_id, is_commit = body.transactional_id, body.committed
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return Outcome(replies=[(reply, end_error(Error.INVALID_PRODUCER_ID_MAPPING))])
        claimed = Identity(body.producer_id, body.producer_epoch)
        ending = ending_of(transaction, claimed, is_commit, client_version)
        if claimed == transaction.client:
            if self._has_line(transactional_id):
                ending = Ending.UNDER_WAY
            elif ending is Ending.INVALID and not is_commit and self._sent_away.get(transactional_id) == claimed:
                # It was told to come again with its first partition, and gives up: nothing of it is there to abort.
                ending = Ending.ENDED_SO
        match ending:
            case Ending.ENDS:
                return self._end(transaction, is_commit, client_version, reply, now_ms)
            case Ending.ENDED_SO:
                return Outcome(replies=[(reply, ended_response(transaction.client))])
            case Ending.UNDER_WAY:
                return self._wait(
                    transactional_id, lambda now: self.end(body, client_version, reply, now), reply, end_error, now_ms
                )
            case Ending():
                return Outcome(replies=[(reply, end_error(_ENDING_ERRORS[ending]))])
            case error:
                return Outcome(replies=[(reply, end_error(error))])

    def _end(
        self, transaction: Transaction, is_commit: bool, client_version: int, reply: Reply, now_ms: int
    ) -> Outcome:
        producer_id = None
        if needs_producer_id(transaction, client_version):
            producer_id = self._take_producer_id()
            if producer_id is None:
                return Outcome(replies=[(reply, end_error(Error.COORDINATOR_LOAD_IN_PROGRESS))])
        after = ended(transaction, is_commit, client_version, now_ms, new_producer_id=producer_id)
        outcome = Outcome(replies=[(reply, ended_response(after.client))])
        self._decide_end(outcome, after, now_ms)
        return outcome

    def _fenced(self, transaction: Transaction, now_ms: int) -> Transaction | None:
        """Aborted without its producer, which is fenced. None when that needs a producer id, and none is at hand."""
        producer_id = None
        if transaction.client.is_exhausted:
            producer_id = self._take_producer_id()
            if producer_id is None:
                return None
        return ended(transaction, False, self._version, now_ms, is_fence=True, new_producer_id=producer_id)

    def _decide_end(self, outcome: Outcome, after: Transaction, now_ms: int) -> None:
        self._decide(outcome, after)
        self._mark(outcome, after, now_ms)

    def _mark(self, outcome: Outcome, transaction: Transaction, now_ms: int) -> None:
        if not transaction.partitions:
            self._complete(outcome, transaction, now_ms)
            return
        outcome.effects.append(
            WriteMarkers(
                transaction.transactional_id,
                Identity(transaction.producer_id, transaction.producer_epoch),
                transaction.is_commit,
                tuple(transaction.partitions),
                self._epoch,
                transaction.client_version,
            )
        )

    def markers_written(self, effect: WriteMarkers, now_ms: int) -> Outcome:
        """Every partition has its marker, or is no more."""
        transaction = self.transactions.get(effect.transactional_id)
        if (
            transaction is None
            or not transaction.is_prepared
            or effect.markers != Identity(transaction.producer_id, transaction.producer_epoch)
        ):
            return Outcome()
        outcome = Outcome()
        self._complete(outcome, transaction, now_ms)
        return outcome

    def _complete(self, outcome: Outcome, transaction: Transaction, now_ms: int) -> None:
        self._decide(outcome, transaction.completed(now_ms))
        if transaction.transactional_id in self._waiting:
            self._go_on_soon(transaction.transactional_id, now_ms)

    # ---------------------------------------------------------------------------------------------------------- waiting

    def _wait(
        self, transactional_id: str, go_on: Callable[[int], Outcome], reply: Reply, respond: Respond, now_ms: int
    ) -> Outcome:
        line = self._waiting.get(transactional_id, [])
        pause_ms = self._config.add_partitions_to_txn_retry_backoff_max_ms
        if len(line) >= WAITING_MAX or not pause_ms:
            return Outcome(replies=[(reply, respond(Error.CONCURRENT_TRANSACTIONS))])
        self._waiting[transactional_id] = line
        line.insert(0 if self._is_going_on else len(line), _Waiting(go_on, reply, respond))
        if len(line) == 1 or self._is_going_on:
            self._timers.at(
                ("waiting", transactional_id), now_ms + pause_ms, lambda now: self._give_up(transactional_id)
            )
        return Outcome()

    def _has_line(self, transactional_id: str) -> bool:
        """Others came before: who is not called from the line stands in it, so that no request overtakes another."""
        return transactional_id in self._waiting and not self._is_going_on

    def _go_on_soon(self, transactional_id: str, now_ms: int) -> None:
        """In place of giving up. One at a time: the next one is to see what this one decides."""
        self._timers.at(("waiting", transactional_id), now_ms, lambda now: self._go_on(transactional_id, now))

    def _go_on(self, transactional_id: str, now_ms: int) -> Outcome:
        line = self._waiting.pop(transactional_id, [])
        if not line:
            return Outcome()
        first = line.pop(0)
        if line:
            self._waiting[transactional_id] = line
            self._go_on_soon(transactional_id, now_ms)
        self._is_going_on = True
        try:
            return first.go_on(now_ms)
        finally:
            self._is_going_on = False

    def _give_up(self, transactional_id: str) -> Outcome:
        """The markers take their time: a partition is without a leader, say. The producer is to ask again."""
        line = self._waiting.pop(transactional_id, ())
        return Outcome(replies=[(one.reply, one.respond(Error.CONCURRENT_TRANSACTIONS)) for one in line])

    # ----------------------------------------------------------------------------------------------------- what is late

    def _watch_open(self, now_ms: int) -> None:
        """Only while transactions are open is there a timer."""
        if not self._is_watching:
            self._is_watching = True
            pause_ms = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._timers.at("open", now_ms + pause_ms, self._abort_late)

    def _abort_late(self, now_ms: int) -> Outcome:
        self._is_watching = False
        outcome = Outcome(is_atomic=False)
        for transactional_id in self._open:
            transaction = self.transactions[transactional_id]
            if transaction.is_timed_out(now_ms) and (fenced := self._fenced(transaction, now_ms)) is not None:
                self._decide_end(outcome, fenced, now_ms)
        if self._open:
            self._watch_open(now_ms)
        return outcome

    def _watch_old(self, now_ms: int) -> None:
        pause_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._timers.at("old", now_ms + pause_ms, self._forget_old)

    def _forget_old(self, now_ms: int) -> Outcome:
        """A bit at a time: there may be a million of them."""
        looking_at, outcome = self._looking_at, Outcome(is_atomic=False)
        if not looking_at:
            looking_at.extend(self.transactions)
        before_ms = now_ms - self._config.transactional_id_expiration_ms
        for _ in range(min(len(looking_at), LOOKED_AT_A_STEP)):
            transactional_id = looking_at.popleft()
            transaction = self.transactions.get(transactional_id)
            if transaction is not None and transaction.state in AT_REST and transaction.update_ms <= before_ms:
                outcome.records.append(StateRecord(key_of(transactional_id), None))
        if looking_at:
            self._timers.at("old", now_ms, self._forget_old)
        else:
            self._watch_old(now_ms)
        return outcome

    # ----------------------------------------------------------------------------------------------- for administrators

    def listed(self, wanted: Filter, now_ms: int) -> Iterator[m.ListTransactionsResponse.TransactionState]:
        for transaction in self.transactions.values():
            if wanted.matches(transaction, now_ms):
                yield listed(transaction)

    def describe(self, transactional_id: str, reply: Reply, now_ms: int) -> Outcome:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return Outcome(replies=[(reply, described_error(transactional_id, Error.TRANSACTIONAL_ID_NOT_FOUND))])
        return Outcome(replies=[(reply, described(transaction))])


def _mismatch(transaction: Transaction | None, claimed: Identity) -> Error:
    """NONE when the producer has the identity that it shows."""
    if transaction is None or claimed.producer_id != transaction.client.producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    return Error.NONE if claimed == transaction.client else Error.PRODUCER_FENCED
