# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Fetch sessions (KIP-227): a client that fetches the same partitions again and again names only what changed. PURE.

A full fetch (epoch 0) may open a session, whose id the reply carries. Each fetch after it is incremental: it says which
partitions are new, have moved or are forgotten, and its reply leaves out those of which there is nothing to tell. The
epoch counts the fetches of a session, so that none is lost or doubled unnoticed. A partition that gave records goes to
the end of the line, so that one with much to give does not starve the others.

A session speaks of topics by id (version 13 and later) or by name, never both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.errors import Error
from headrace.protocol import messages as m

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
TOPIC_ID_VERSION: Final = 13
PARTITIONS_MAX: Final = 1_000_000
"""What all sessions may know together, at some 300 bytes each: a request can name a million that there are not."""
FEW_PARTITIONS: Final = 100
"""A session of so few is opened without counting: the number of sessions bounds those."""
_EPOCH_MAX: Final = 2**31 - 1

Key: TypeAlias = tuple[bytes | str, int]
"""The topic, by what the session calls topics, and the partition."""

if TYPE_CHECKING:
    PartitionData = m.FetchResponse.PartitionData
    Result = tuple["FetchedPartition", PartitionData]


class FetchedPartition:
    """What a client wants of a partition, and what it was last told of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "fetcher_log_start_offset",
        "index",
        "known_as",
        "last_fetched_epoch",
        "max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, wanted: m.FetchRequest.FetchPartition) -> None:
        self.topic = topic
        """Empty when the client speaks of topics by id."""
        self.topic_id = topic_id
        self.known_as = ""
        """What the topic of the id was called when it was found last."""
        self.index = wanted.partition
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.want(wanted)

    def want(self, wanted: m.FetchRequest.FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.fetcher_log_start_offset = wanted.log_start_offset

    def tell(self, data: PartitionData) -> bool:
        """The client is about to be told this, if there is anything in it that it does not know: True then."""
        is_news = (
            bool(data.records)
            or data.error_code != 0
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_log_start_offset
            or data.preferred_read_replica != -1
            or (data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0)
        )
        # After an error the client is told again, even if all is as it was before.
        self.told_high_watermark = -1 if data.error_code else data.high_watermark
        self.told_log_start_offset = data.log_start_offset
        return is_news

    def __repr__(self) -> str:
        return f"<FetchedPartition {self.topic or self.topic_id.hex()}-{self.index} at {self.fetch_offset}>"


class Session:
    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "is_follower",
        "is_settled",
        "partitions",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[Key, FetchedPartition],
        *,
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        self.epoch = next_epoch(INITIAL_EPOCH)
        """That of the next fetch."""
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.is_settled = False
        """It was used when it was older than the eviction time: from then on a larger one may take its place."""


class Context:
    """One fetch: what to read, in which order, and what to make of the results."""

    __slots__ = ("_expected_epoch", "_is_full", "_now_ms", "_session", "_sessions", "_version", "error", "partitions")

    def __init__(self, sessions: Sessions, partitions: Iterable[FetchedPartition], version: int, now_ms: int) -> None:
        self._sessions = sessions
        self._version = version
        self._now_ms = now_ms
        self._session: Session | None = None
        self._expected_epoch = 0
        self._is_full = False
        self.partitions = list(partitions)
        self.error = Error.NONE
        """Why the fetch can't be served at all; then there are no partitions."""

    @classmethod
    def refused(cls, sessions: Sessions, error: Error) -> Context:
        context = cls(sessions, (), 0, 0)
        context.error = error
        return context

    def reply(self, results: list[Result], is_follower: bool = False) -> m.FetchResponse:
        """The reply to the client, with the results that it has to be told of. Called once."""
        if self.error:
            return m.FetchResponse(error_code=self.error, session_id=NO_SESSION)
        session_id = NO_SESSION
        if self._is_full:
            session_id = self._sessions._open(results, self._version, is_follower, self._now_ms)
        elif (session := self._session) is not None:
            session_id = session.id
            if session.epoch != self._expected_epoch:
                # The same fetch came twice, and the other one was answered: only one of them may count.
                return m.FetchResponse(error_code=Error.INVALID_FETCH_SESSION_EPOCH, session_id=session_id)
            results = [result for result in results if self._tell(session, result[0], result[1])]
        return m.FetchResponse(session_id=session_id, responses=_by_topic(results))

    def _tell(self, session: Session, partition: FetchedPartition, data: PartitionData) -> bool:
        if data.records:
            key = (partition.topic_id if session.uses_topic_ids else partition.topic, partition.index)
            session.partitions[key] = session.partitions.pop(key)
        return partition.tell(data)


class Sessions:
    """The sessions of a node, a bounded number of them: who finds no room fetches without one."""

    __slots__ = ("_random_bytes", "_sessions", "capacity", "eviction_ms", "evictions", "partitions_max")

    def __init__(
        self,
        random_bytes: Callable[[int], bytes],
        *,
        capacity: int = 1000,
        eviction_ms: int = 120_000,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        """max.incremental.fetch.session.cache.slots, and min.incremental.fetch.session.eviction.ms."""
        self._random_bytes = random_bytes
        self.capacity = capacity
        self.eviction_ms = eviction_ms
        self.partitions_max = partitions_max
        self.evictions = 0
        self._sessions: dict[int, Session] = {}  # by their last use, the oldest first

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(self, request: m.FetchRequest, version: int, now_ms: int) -> Context:
        """What a fetch asks for, by itself or with what its session knows."""
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._sessions.pop(request.session_id, None)
            context = Context(self, _wanted(request, version).values(), version, now_ms)
            context._is_full = epoch == INITIAL_EPOCH
            return context
        session = self._sessions.get(request.session_id)
        if session is None:
            return Context.refused(self, Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return Context.refused(self, Error.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= TOPIC_ID_VERSION):
            return Context.refused(self, Error.FETCH_SESSION_TOPIC_ID_ERROR)
        wanted = _wanted(request, version) if request.topics else {}
        size = len(session.partitions)
        _take_over(session, wanted)
        if request.forgotten_topics_data:
            _forget(session, request.forgotten_topics_data)
        if not session.partitions:
            del self._sessions[session.id]
            return Context(self, wanted.values(), version, now_ms)
        if len(session.partitions) > size and not self._has_room(0, len(session.partitions)):
            self._drop(session)
            return Context.refused(self, Error.FETCH_SESSION_ID_NOT_FOUND)
        self._touch(session, now_ms)
        session.epoch = next_epoch(epoch)
        context = Context(self, session.partitions.values(), version, now_ms)
        context._session = session
        context._expected_epoch = session.epoch
        return context

    # ---------------------------------------------------------------------------------------------- room for sessions

    def _open(self, results: list[Result], version: int, is_follower: bool, now_ms: int) -> int:
        """The id of a new session with these partitions; NO_SESSION when there is no room."""
        if not self._has_room(len(results), len(results)):
            return NO_SESSION
        if len(self._sessions) >= self.capacity and not self._evict(len(results), is_follower, now_ms):
            return NO_SESSION
        uses_topic_ids = version >= TOPIC_ID_VERSION
        partitions: dict[Key, FetchedPartition] = {}
        for partition, data in results:
            partition.told_high_watermark = data.high_watermark
            partition.told_log_start_offset = data.log_start_offset
            partitions[partition.topic_id if uses_topic_ids else partition.topic, partition.index] = partition
        session = Session(
            self._new_id(), partitions, uses_topic_ids=uses_topic_ids, is_follower=is_follower, now_ms=now_ms
        )
        self._sessions[session.id] = session
        return session.id

    def _has_room(self, more: int, size: int) -> bool:
        """For so many partitions more, in a session of that size."""
        return size <= FEW_PARTITIONS or self.partition_count + more <= self.partitions_max

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._random_bytes(4)) & 0x7FFFFFFF
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id

    def _touch(self, session: Session, now_ms: int) -> None:
        session.used_ms = now_ms
        session.is_settled = now_ms - session.created_ms > self.eviction_ms
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _evict(self, size: int, is_follower: bool, now_ms: int) -> bool:
        """Makes room for a session of that size: one that is stale goes, or else a lesser one.

        Followers matter more than clients and larger sessions more than smaller ones, as those cost more without one.
        A session is safe from a larger one of its kind for its first minutes, so that they do not chase each other out.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > self.eviction_ms:
            self._drop(oldest)
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if session.is_settled or (is_follower and not session.is_follower)
        ]
        least = min(evictable, key=_weight, default=None)
        if least is None or (is_follower, size, 0) < _weight(least):
            return False
        self._drop(least)
        return True

    def _drop(self, session: Session) -> None:
        del self._sessions[session.id]
        self.evictions += 1


def next_epoch(epoch: int) -> int:
    """Epochs go round without passing 0, which opens a session."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


def _weight(session: Session) -> tuple[bool, int, int]:
    return session.is_follower, len(session.partitions), session.id


def _wanted(request: m.FetchRequest, version: int) -> dict[Key, FetchedPartition]:
    """The partitions of a request. Of one that is named twice the last counts, at the place of the first."""
    by_id = version >= TOPIC_ID_VERSION
    wanted: dict[Key, FetchedPartition] = {}
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            wanted[name, partition.partition] = FetchedPartition(topic.topic, topic.topic_id, partition)
    return wanted


def _take_over(session: Session, wanted: dict[Key, FetchedPartition]) -> None:
    for key, partition in wanted.items():
        known = session.partitions.setdefault(key, partition)
        if known is not partition:
            known.fetch_offset = partition.fetch_offset
            known.max_bytes = partition.max_bytes
            known.current_leader_epoch = partition.current_leader_epoch
            known.last_fetched_epoch = partition.last_fetched_epoch
            known.fetcher_log_start_offset = partition.fetcher_log_start_offset


def _forget(session: Session, topics: list[m.FetchRequest.ForgottenTopic]) -> None:
    for topic in topics:
        name = topic.topic_id if session.uses_topic_ids else topic.topic
        for index in topic.partitions:
            session.partitions.pop((name, index), None)


def _by_topic(results: list[Result]) -> list[m.FetchResponse.FetchableTopicResponse]:
    """Grouped by topic where neighbours are of one, in the order that they have."""
    topics: list[m.FetchResponse.FetchableTopicResponse] = []
    last: tuple[str, bytes] | None = None
    for partition, data in results:
        topic = (partition.topic, partition.topic_id)
        if topic != last:
            topics.append(
                m.FetchResponse.FetchableTopicResponse(
                    topic=partition.topic, topic_id=partition.topic_id, partitions=[data]
                )
            )
            last = topic
        else:
            topics[-1].partitions.append(data)
    return topics
