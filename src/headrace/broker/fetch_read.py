# cython: language_level=3, annotation_typing=False, nonecheck=True
"""What a fetch gets of one partition: first where it lies and what is to be said of it, then the bytes.

Both are done on the loop as long as all that is read is in memory. What is not, a worker reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from headrace.broker.fetch_session import TOPIC_ID_VERSION, FetchedPartition
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.sending import FileUnsendable, Stretch, Stretches
from headrace.protocol import messages as m
from headrace.replica.manager import Replicas
from headrace.replica.partition import NO_EPOCH, Partition
from headrace.storage.disk import IMPATIENT, DiskError, File
from headrace.storage.log import Log
from headrace.storage.read import Fetched, Piece
from headrace.storage.scan import LogDamaged

if TYPE_CHECKING:
    PartitionData = m.FetchResponse.PartitionData

logger = logging.getLogger(__name__)


STORAGE_ERROR_VERSION: Final = 6
"""Before it clients do not know KAFKA_STORAGE_ERROR, and take NOT_LEADER_OR_FOLLOWER for a reason to look elsewhere."""
UNHURRIED: Final = (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION)
"""A client that goes on asking for what is not there waits with the rest of its fetch, as in Kafka."""
_SIZE_END: Final = 12


class Terms:
    """What holds for all partitions of a fetch."""

    __slots__ = ("is_committed", "is_follower", "version")

    def __init__(self, version: int, is_committed: bool, is_follower: bool) -> None:
        self.version = version
        self.is_committed = is_committed
        self.is_follower = is_follower


class Gathered:
    """Of one partition. Whoever has it releases it."""

    __slots__ = ("data", "fetched", "partition", "wanted")

    def __init__(
        self, wanted: FetchedPartition, data: PartitionData, partition: Partition | None, fetched: Fetched | None
    ) -> None:
        self.wanted = wanted
        self.data = data
        self.partition = partition
        """None when it is not to be waited for: it is not there, or there is an error to tell."""
        self.fetched = fetched

    @property
    def size_bytes(self) -> int:
        return 0 if self.fetched is None else self.fetched.size_bytes

    @property
    def is_urgent(self) -> bool:
        """The client has to act, and so it is told at once."""
        data = self.data
        return data.diverging_epoch is not None or (data.error_code != 0 and data.error_code not in UNHURRIED)

    def release(self) -> None:
        fetched, self.fetched = self.fetched, None
        if fetched is not None:
            fetched.release()

    def fail(self, error: Exception, version: int) -> None:
        """Its bytes could not be read."""
        logger.error("%s can't be read: %s", self.wanted, error)
        self.data = refusal(self.wanted.index, _error_of(error), version)
        self.partition = None


def gather(
    replicas: Replicas, wanted: FetchedPartition, terms: Terms, limit_bytes: int, min_one_batch: bool
) -> Gathered:
    """Raises ReadWouldWait when it has to look at something that is not in memory, while IMPATIENT is set."""
    try:
        if terms.version < TOPIC_ID_VERSION:
            partition = replicas.find(wanted.topic, wanted.index)
        else:
            partition = replicas.find_by_id(wanted.topic_id, wanted.index)
            wanted.known_as = partition.topic
        epoch = wanted.current_leader_epoch
        partition.require_leader(epoch if epoch >= 0 else NO_EPOCH)  # any negative one is none, in Fetch alone
        if terms.is_follower:
            raise Refused(Error.NOT_LEADER_OR_FOLLOWER, f"{partition} has no such replica.")
        return _gather(partition, wanted, terms, limit_bytes, min_one_batch)
    except (Refused, DiskError, LogDamaged) as error:
        if not isinstance(error, Refused):
            logger.error("%s can't be read: %s", wanted, error)
        code = _error_of(error)
        if code is Error.UNKNOWN_TOPIC_ID and wanted.known_as:
            code = _gone(replicas, wanted.known_as)
        return Gathered(wanted, refusal(wanted.index, code, terms.version), None, None)


def _gone(replicas: Replicas, topic: str) -> Error:
    """Of a topic that was deleted while it was fetched. As in Kafka, such a fetch goes by the name that it had."""
    is_made_again = topic in replicas.image.topic_ids
    return Error.INCONSISTENT_TOPIC_ID if is_made_again else Error.UNKNOWN_TOPIC_OR_PARTITION


def _gather(
    partition: Partition, wanted: FetchedPartition, terms: Terms, limit_bytes: int, min_one_batch: bool
) -> Gathered:
    log = partition.log
    high_watermark, stable_offset = log.high_watermark, log.last_stable_offset
    data = m.FetchResponse.PartitionData(
        partition_index=wanted.index,
        high_watermark=high_watermark,
        last_stable_offset=stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if terms.is_committed else None,
    )
    offset = wanted.fetch_offset
    if wanted.last_fetched_epoch >= 0 and (diverging := _diverging(partition, wanted)) is not None:
        data.diverging_epoch = diverging
        return Gathered(wanted, data, partition, None)
    offset_max = stable_offset if terms.is_committed else high_watermark
    size_max = min(wanted.max_bytes, limit_bytes)
    if offset == log.log_end_offset or (size_max <= 0 and not min_one_batch and offset >= log.log_start_offset):
        return Gathered(wanted, data, partition, None)
    fetched = log.read(offset, max(0, size_max), offset_max, min_one_batch)
    if not fetched.size_bytes:
        return Gathered(wanted, data, partition, None)
    try:
        if not min_one_batch and fetched.size_bytes >= size_max and not _has_whole_batch(fetched):
            fetched.release()
            return Gathered(wanted, data, partition, None)
        if terms.is_committed:
            data.aborted_transactions = _aborted(log, offset, fetched.end_offset)
    except BaseException:
        fetched.release()
        raise
    return Gathered(wanted, data, partition, fetched)


def _diverging(partition: Partition, wanted: FetchedPartition) -> m.FetchResponse.EpochEndOffset | None:
    """Where the reader's last epoch ended here, when it has read beyond that: it must go back (KIP-595)."""
    epoch, end_offset = partition.end_offset_for(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or wanted.fetch_offset < partition.log_start_offset:
        raise Refused(Error.OFFSET_OUT_OF_RANGE)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return m.FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _has_whole_batch(fetched: Fetched) -> bool:
    """A batch that does not fit is left for the next fetch, unless it is the first of all: a part of it is no use."""
    first = fetched.pieces[0]
    if fetched.size_bytes < _SIZE_END:
        return False
    start = first.file.read(first.position, _SIZE_END)
    return int.from_bytes(start[8:_SIZE_END]) + _SIZE_END <= fetched.size_bytes


def _aborted(log: Log, offset: int, end_offset: int) -> list[m.FetchResponse.AbortedTransaction]:
    return [
        m.FetchResponse.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.aborted_in(offset, end_offset)
    ]


def refusal(index: int, error: Error, version: int) -> PartitionData:
    if error is Error.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_VERSION:
        error = Error.NOT_LEADER_OR_FOLLOWER
    return m.FetchResponse.PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if error in UNHURRIED else None,  # as Kafka says it
    )


def _error_of(error: Exception) -> Error:
    if isinstance(error, Refused):
        return error.error
    return Error.CORRUPT_MESSAGE if isinstance(error, LogDamaged) else Error.KAFKA_STORAGE_ERROR


# ------------------------------------------------------------------------------------------------------------ the bytes


class ColdRead:
    """A job for a worker: what of a fetch is not in memory. The files are held until it is done."""

    __slots__ = ("_parts", "failed")

    def __init__(self) -> None:
        self._parts: list[tuple[Gathered, File, int, memoryview]] = []
        self.failed: list[tuple[Gathered, Exception]] = []

    def add(self, gathered: Gathered, file: File, position: int, into: memoryview) -> None:
        self._parts.append((gathered, file, position, into))

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __call__(self) -> None:
        # The worker keeps its last job until the next one comes: the buffers must not live on with it.
        parts, self._parts = self._parts, []
        while parts:
            gathered, file, position, into = parts.pop()
            try:
                if file.read_cold(position, into) < len(into):
                    raise DiskError(file.path, "it is shorter than its log says")
            except HeadraceError as error:
                self.failed.append((gathered, error))
            into.release()


def read(gathered: Gathered, buffer: bytearray | memoryview, cold: ColdRead) -> None:
    """Fills the buffer with what is in memory, and leaves the rest to `cold`."""
    assert gathered.fetched is not None
    gathered.data.records = buffer
    pieces = gathered.fetched.pieces
    if len(pieces) == 1 and pieces[0].file.read_cached(pieces[0].position, buffer) == len(buffer):
        return
    view = memoryview(buffer)
    start = 0
    for piece in pieces:
        end = start + piece.size_bytes
        position = piece.position
        while start < end:
            found = piece.file.read_cached(position, view[start:end])
            if not found:  # nothing in memory, or the end of the file, of which the worker will tell
                cold.add(gathered, piece.file, position, view[start:end])
                break
            start += found
            position += found
        start = end


def point_out(gathered: list[Gathered]) -> bool:
    """Lets where the records lie stand for them, for whoever sends from files; False when that can't be."""
    found = [part for part in gathered if part.fetched is not None]
    places = [_stretches(part.fetched.pieces) for part in found if part.fetched is not None]
    if None in places:
        return False
    for part, place in zip(found, places, strict=True):
        part.data.records = cast(Any, place)  # which is as long as they are
    return True


def _stretches(pieces: list[Piece]) -> Stretches | None:
    found: list[Stretch] = []
    for piece in pieces:
        file = piece.file
        descriptor = file.to_send()
        if descriptor is None:
            return None
        found.append(Stretch(file, descriptor, piece.position, piece.size_bytes))
    return Stretches(found)


class Sent:
    """What is read as it is sent. The files are held until it was."""

    __slots__ = ("_fetched",)

    def __init__(self, fetched: list[Fetched]) -> None:
        self._fetched = fetched
        for part in fetched:
            part.hold()

    def ended(self, error: BaseException | None) -> None:
        """It was sent, or could not be."""
        fetched, self._fetched = self._fetched, []
        for part in fetched:
            if isinstance(error, FileUnsendable):
                # Which of them it was is not known. From now on they are read before they are sent, and it is told.
                part.keep_from_sends()
                logger.error("%s can't be sent (%s); the connection is closed", part.pieces, error)
            part.release()


@contextmanager
def impatient(wanted: bool) -> Iterator[None]:
    """Reads raise ReadWouldWait instead of waiting for the device, if that is wanted."""
    token = IMPATIENT.set(wanted)
    try:
        yield
    finally:
        IMPATIENT.reset(token)
