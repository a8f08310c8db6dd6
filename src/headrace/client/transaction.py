"""A transaction of a producer: what it is in, what belongs to it, and what may be done next.

The state machine, from top to bottom:

    begin:   READY -> OPEN
    a batch or an offset is refused, or nobody knows of it:  OPEN -> BROKEN, which can only be aborted
    commit, abort:  OPEN -> ENDING -> READY, under the epoch that the coordinator gives for the next one
    prepare: OPEN -> PREPARED, which only `commit` and `abort` end (two-phase commit, KIP-939)
    somebody else took the transactional id:  any -> FENCED, for good

ENDING stays when no answer comes: the same end can be asked for again, and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum, auto
from typing import Final, NamedTuple, NoReturn

from headrace.client.arguments import INT64_MAX, instance, mapping, partitions, text, whole
from headrace.client.cluster import Cluster
from headrace.client.coordinators import CoordinatorKind, Coordinators
from headrace.client.errors import Fenced, MustAbort, Uncertain
from headrace.client.lane import Identity, Lane
from headrace.client.sender import Sender
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol import messages as m

__all__ = ["GroupMember", "OffsetToCommit", "Prepared", "Transaction", "checked_offsets"]

_log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
TRANSACTION_VERSION: Final = "transaction.version"
IMPLICIT_SINCE: Final = 2
"""From this transaction version on, partitions are added by what is written to them, and each end bumps the epoch."""
PRODUCE_VERSION_MAX: Final = 11  # without the implicit adding
OFFSET_COMMIT_VERSION_MAX: Final = 4
END_VERSION_MAX: Final = 4
ADD_VERSION_MAX: Final = 3  # later ones are for brokers
_FENCED: Final = frozenset({Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING})


class OffsetToCommit(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMember(NamedTuple):
    """On whose behalf offsets are committed. Without a member id, as a group that only keeps offsets."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Prepared(NamedTuple):
    """A transaction that waits for its end; write it down, to end it after a restart (KIP-939)."""

    producer_id: int
    epoch: int


def checked_offsets(offsets: Mapping[TopicPartition, OffsetToCommit | int]) -> dict[TopicPartition, OffsetToCommit]:
    """What a caller wants to be committed, in one form."""
    given = mapping("offsets", offsets, "offsets by topic and partition, such as {('letters', 0): 1}")
    partitions("offsets", given)
    checked = {key: to if isinstance(to, OffsetToCommit) else OffsetToCommit(to) for key, to in given.items()}
    for to in checked.values():
        whole("each of offsets", to.offset, 0, INT64_MAX)
        whole("leader_epoch", to.leader_epoch, -1)
        text("metadata", to.metadata, empty=True)
    return checked


def check_member(group: GroupMember) -> None:
    instance("group", group, GroupMember, "a GroupMember, such as a group consumer's `member`")
    text("group_id", group.group_id)
    whole("generation", group.generation, -1)
    text("member_id", group.member_id, empty=True)
    if group.instance_id is not None:
        text("instance_id", group.instance_id)


class State(Enum):
    READY = auto()
    OPEN = auto()
    BROKEN = auto()
    PREPARED = auto()
    ENDING = auto()
    FENCED = auto()


class Transaction:
    __slots__ = (
        "_added",
        "_adding",
        "_cluster",
        "_coordinators",
        "_failure",
        "_has_offsets",
        "_is_commit",
        "_is_implicit",
        "_kept",
        "_loop",
        "_needs_bump",
        "_sender",
        "_task",
        "_timeout_ms",
        "_two_phase",
        "produce_version_max",
        "state",
        "transactional_id",
    )

    def __init__(
        self, cluster: Cluster, sender: Sender, transactional_id: str, timeout_ms: int, *, two_phase: bool = False
    ) -> None:
        self.transactional_id = transactional_id
        self.state = State.READY
        self.produce_version_max: int | None = None
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        self._is_implicit = False
        self._added: dict[TopicPartition, None] = {}
        self._adding: dict[TopicPartition, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._has_offsets = False
        self._failure: MustAbort | Fenced | None = None
        self._is_commit = False
        self._needs_bump = False
        self._kept: Prepared | None = None

    # --- its life -----------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        self._check_fenced()
        if self.state is not State.READY:
            raise ValueError(f"a transaction is {self.state.name.lower()}: commit or abort it before the next one.")
        if self._sender.identity is None or self._needs_bump:
            await self._initialise()
        self._added.clear()
        self._has_offsets = False
        self._failure = None
        self.state = State.OPEN

    async def prepare_to_commit(self) -> Prepared:
        self._check_open()
        assert self._sender.identity is not None
        self.state = State.PREPARED
        return Prepared(*self._sender.identity)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort. Uncertain when no answer came: ask for the same end again."""
        self._check_fenced()
        if self.state is State.READY:
            raise ValueError("no transaction is open: begin one.")
        if self.state is State.ENDING and commit is not self._is_commit:
            raise ValueError("the transaction is being ended the other way: ask for that again.")
        if commit and self.state is State.BROKEN:
            assert self._failure is not None
            raise self._failure
        self._adding.clear()
        while self._task is not None:
            await asyncio.wait([self._task])
        if commit and self.state is State.BROKEN:  # by what it has just waited for
            assert self._failure is not None
            raise self._failure
        self._is_commit = commit
        if not (self._added or self._has_offsets or self._kept is not None):
            self.state = State.READY  # the coordinator has never heard of it
            return
        self.state = State.ENDING
        await self._end(commit)

    async def _end(self, commit: bool) -> None:
        identity = self._sender.identity
        assert identity is not None
        request = m.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )
        try:
            response: m.EndTxnResponse = await self._coordinators.call(
                CoordinatorKind.TRANSACTION,
                self.transactional_id,
                request,
                lambda response: response.error_code,
                version_max=None if self._is_implicit else END_VERSION_MAX,
            )
        except HeadraceError as failure:
            end = "commit" if commit else "abort"
            text = f"Nobody knows whether the {end} of {self.transactional_id} was heard: {failure}"
            raise Uncertain(text) from failure
        error = Error.of(response.error_code)
        if error is Error.NONE:
            if response.producer_id >= 0:
                self._sender.identity = Identity(response.producer_id, response.producer_epoch)
            self._ended()
            return
        if error is Error.TRANSACTION_ABORTABLE and commit:
            self._break(error, "The coordinator can't commit it")
            assert self._failure is not None
            raise self._failure
        if error in (Error.INVALID_PRODUCER_EPOCH, *_FENCED):
            self._fence(error)
        if error is Error.INVALID_TXN_STATE and not commit:
            self._needs_bump = True  # the coordinator has ended it already, by its time-out
            self._ended()
            return
        self.state = State.BROKEN
        raise Refused(error, f"The transaction of {self.transactional_id} was not ended ({error.name}): {error.text}")

    def _ended(self) -> None:
        if not self._is_commit and not self._is_implicit:
            self._needs_bump = self._needs_bump or self._failure is not None
        self._kept = None
        self._added.clear()
        self.state = State.READY
        self._sender.touch_all()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._coordinators.close()

    # --- the producer id ----------------------------------------------------------------------------------------------

    async def recover(self) -> Prepared | None:
        """Take over the transactional id and keep what its last user prepared (two-phase commit); None if nothing."""
        await self._initialise(keep=True)
        if self._kept is not None:
            self.state = State.PREPARED
        return self._kept

    async def _initialise(self, *, keep: bool = False) -> None:
        """An epoch of our own, which fences whoever had the id before. What they left open is aborted."""
        identity = self._sender.identity if self._needs_bump else None
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=-1 if identity is None else identity.producer_id,
            producer_epoch=-1 if identity is None else identity.epoch,
            enable_2pc=self._two_phase,
            keep_prepared_txn=keep,
        )
        response: m.InitProducerIdResponse = await self._coordinators.call(
            CoordinatorKind.TRANSACTION, self.transactional_id, request, lambda response: response.error_code
        )
        error = Error.of(response.error_code)
        if error in (Error.INVALID_PRODUCER_EPOCH, *_FENCED):
            self._fence(error)
        if error is not Error.NONE:
            raise Refused(error, f"{self.transactional_id} gets no producer id ({error.name}): {error.text}")
        self._sender.identity = Identity(response.producer_id, response.producer_epoch)
        self._needs_bump = False
        self._kept = None
        if keep and response.ongoing_txn_producer_id >= 0:
            self._kept = Prepared(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        await self._learn_version()

    async def _learn_version(self) -> None:
        served = await self._coordinators.served(CoordinatorKind.TRANSACTION, self.transactional_id)
        self._is_implicit = served.features.get(TRANSACTION_VERSION, 0) >= IMPLICIT_SINCE
        self.produce_version_max = None if self._is_implicit else PRODUCE_VERSION_MAX

    # --- what belongs to it -------------------------------------------------------------------------------------------

    def prepare(self, lane: Lane) -> bool:
        identity = self._sender.identity
        if self.state is not State.OPEN or identity is None:
            self._sender.fail_lane(lane, "its transaction can only be aborted")
            return False
        if lane.identity == identity and lane.settle():
            self._break(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, f"A batch for {lane.topic}-{lane.index} is missing")
            self._sender.fail_lane(lane, "a batch before it is missing")
            return False
        if lane.may_adopt(identity):
            lane.restart(identity)  # nothing of an earlier transaction is left in it
        partition = (lane.topic, lane.index)
        if partition not in self._added:
            if self._is_implicit:
                self._added[partition] = None
            else:
                self._add(partition)
                return False
        return lane.identity == identity

    def _add(self, partition: TopicPartition) -> None:
        self._adding[partition] = None
        if self._task is None:
            self._task = self._loop.create_task(self._add_all())

    async def _add_all(self) -> None:
        try:
            await asyncio.sleep(0)  # the other lanes of this turn go with it
            while self._adding:
                partitions, self._adding = self._adding, {}
                await self._add_now(list(partitions))
        except HeadraceError as error:
            self._break(Error.REQUEST_TIMED_OUT, str(error))
        except Exception as error:
            _log.exception("partitions could not be added to a transaction of %s", self.transactional_id)
            self._break(Error.UNKNOWN_SERVER_ERROR, f"The producer failed: {error!r}")
        finally:
            self._task = None
            self._sender.touch_all()

    async def _add_now(self, partitions: list[TopicPartition]) -> None:
        identity = self._sender.identity
        assert identity is not None
        topics: dict[str, m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
        for name, index in partitions:
            topic = topics.setdefault(name, m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name))
            topic.partitions.append(index)
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        response = await self._coordinators.call(
            CoordinatorKind.TRANSACTION,
            self.transactional_id,
            request,
            lambda answer: max((code for _, code in _codes(answer)), key=_weight, default=0),
            version_max=ADD_VERSION_MAX,
        )
        for partition, code in _codes(response):
            error = Error.of(code)
            if error is Error.NONE:
                self._added[partition] = None
            elif error is not Error.OPERATION_NOT_ATTEMPTED:
                self._refused(error, f"{partition[0]}-{partition[1]} can't be in the transaction")

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetToCommit | int], group: GroupMember) -> None:
        """Commit offsets of a group with the transaction."""
        wanted = checked_offsets(offsets)
        check_member(group)
        self._check_open()
        identity = self._sender.identity
        assert identity is not None
        if not wanted:
            return
        if not self._is_implicit:
            added = await self._coordinators.call(
                CoordinatorKind.TRANSACTION,
                self.transactional_id,
                m.AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                    group_id=group.group_id,
                ),
                lambda response: response.error_code,
            )
            self._check(Error.of(added.error_code), f"The offsets of {group.group_id} can't be in the transaction")
        self._has_offsets = True
        response = await self._coordinators.call(
            CoordinatorKind.GROUP,
            group.group_id,
            _offset_commit(self.transactional_id, identity, wanted, group),
            lambda answer: max((code for _, code in _offset_codes(answer)), key=_weight, default=0),
            version_max=None if self._is_implicit else OFFSET_COMMIT_VERSION_MAX,
        )
        for partition, code in _offset_codes(response):
            self._check(Error.of(code), f"The offset of {partition[0]}-{partition[1]} is not committed")

    # --- trouble ------------------------------------------------------------------------------------------------------

    def failed(self, error: Error, text: str) -> None:
        self._refused(error, text.rstrip("."))

    def _refused(self, error: Error, what: str) -> None:
        with suppress(HeadraceError):  # whoever ends the transaction is told
            self._check(error, what)

    def _check(self, error: Error, what: str) -> None:
        if error is Error.NONE:
            return
        if error in _FENCED:
            self._fence(error)
        self._break(error, what)
        assert self._failure is not None
        raise self._failure

    def _break(self, error: Error, what: str) -> None:
        if self.state in (State.OPEN, State.ENDING, State.PREPARED):
            self.state = State.BROKEN
            self._failure = MustAbort(error, f"{what} ({error.name}): {error.text} Abort the transaction.")

    def _fence(self, error: Error) -> NoReturn:
        self.state = State.FENCED
        text = f"Another producer uses the transactional id {self.transactional_id} ({error.name}): this one is over."
        self._failure = Fenced(error, text)
        raise self._failure

    def _check_fenced(self) -> None:
        if self.state is State.FENCED:
            assert self._failure is not None
            raise self._failure

    def _check_open(self) -> None:
        self._check_fenced()
        if self.state is State.BROKEN:
            assert self._failure is not None
            raise self._failure
        if self.state is not State.OPEN:
            raise ValueError("no transaction is open: begin one.")

    def check_sendable(self) -> None:
        self._check_open()

    def give_up(self) -> None:
        """It will be aborted: what waits to be sent is not sent any more."""
        self._break(Error.TRANSACTION_ABORTABLE, "It is being aborted")
        self._sender.touch_all()


def _weight(code: int) -> int:
    """Of several, the one that decides whether the call is tried again."""
    return 2 if Error.of(code).retriable else int(code != 0)


def _codes(response: m.AddPartitionsToTxnResponse) -> Iterable[tuple[TopicPartition, int]]:
    for topic in response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            yield (topic.name, partition.partition_index), partition.partition_error_code


def _offset_codes(response: m.TxnOffsetCommitResponse) -> Iterable[tuple[TopicPartition, int]]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield (topic.name, partition.partition_index), partition.error_code


def _offset_commit(
    transactional_id: str,
    identity: Identity,
    offsets: Mapping[TopicPartition, OffsetToCommit],
    group: GroupMember,
) -> m.TxnOffsetCommitRequest:
    request = m.TxnOffsetCommitRequest
    topics: dict[str, m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = {}
    for (name, index), wanted in offsets.items():
        topic = topics.setdefault(name, request.TxnOffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            request.TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=wanted.offset,
                committed_leader_epoch=wanted.leader_epoch,
                committed_metadata=wanted.metadata,
            )
        )
    return request(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=list(topics.values()),
    )
