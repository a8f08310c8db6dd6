"""Markers: every partition of a transaction that was decided is told how it ended (WriteTxnMarkers).

They are addressed to the leader of each partition, as the image says, in one request a broker for all that one round of
the loop decides. What a broker could not write is sent again, to whoever leads then, until it is done; partitions of a
topic that was deleted need none. Then the coordinator hears of it, and the transaction is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from headrace.coordinator.transactions.shard import WriteMarkers
from headrace.coordinator.transactions.transaction import TopicPartition
from headrace.errors import Error
from headrace.metadata.image import NO_LEADER, Image
from headrace.protocol import messages as m
from headrace.replica.waits import Waits

logger = logging.getLogger(__name__)

BACK_OFF_MS: Final = 20
BACK_OFF_MAX_MS: Final = 1_000
TELL_EVERY: Final = 60
"""Attempts after which the operator is told that a transaction can't be completed, about once a minute."""

Send: TypeAlias = Callable[[int, m.WriteTxnMarkersRequest, Callable[[Any], None]], None]
"""Sends to a broker, and calls back with the response, or with None when there is none."""

_DONE: Final = (
    Error.NONE,
    # The partition has seen a later epoch of the producer, which comes only after the transaction ended there.
    Error.INVALID_PRODUCER_EPOCH,
    # Nothing of a transaction can have been written there.
    Error.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    Error.UNSUPPORTED_VERSION,
)


class _Job:
    """The markers of one transaction that are not written yet."""

    __slots__ = ("attempts", "effect", "is_dropped", "left")

    def __init__(self, effect: WriteMarkers) -> None:
        self.effect = effect
        self.left: dict[TopicPartition, None] = dict.fromkeys(effect.partitions)
        self.attempts = 0
        self.is_dropped = False


class Markers:
    """`write` is what a coordinator's runtime calls with the effect."""

    __slots__ = ("_call_soon", "_image", "_is_flushing", "_is_led", "_jobs", "_queues", "_send", "_waits", "_written")

    def __init__(
        self,
        image: Callable[[], Image],
        send: Send,
        waits: Waits,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        written: Callable[[WriteMarkers], None],
        is_led: Callable[[str], bool],
    ) -> None:
        """`written` is called when all markers of a transaction are; `is_led` says if a transactional id is still
        this node's to coordinate."""
        self._image = image
        self._send = send
        self._waits = waits
        self._call_soon = call_soon
        self._written = written
        self._is_led = is_led
        self._jobs: dict[str, _Job] = {}
        self._queues: dict[int, dict[_Job, list[TopicPartition]]] = {}
        """What is to be sent at the end of this round, by broker."""
        self._is_flushing = False

    def __len__(self) -> int:
        """Transactions whose markers are on their way."""
        return len(self._jobs)

    def write(self, effect: WriteMarkers) -> None:
        before = self._jobs.get(effect.transactional_id)
        if before is not None:  # of this transaction too, before the coordinator was loaded again
            before.is_dropped = True
        job = self._jobs[effect.transactional_id] = _Job(effect)
        self._enqueue(job, list(job.left))

    def _enqueue(self, job: _Job, partitions: list[TopicPartition]) -> None:
        image = self._image()
        again = False
        for partition in partitions:
            topic, index = partition
            found = image.topic(topic)
            state = None if found is None else found.partitions.get(index)
            if state is None:
                job.left.pop(partition, None)  # it was deleted
            elif state.leader == NO_LEADER:
                again = True
            else:
                self._queues.setdefault(state.leader, {}).setdefault(job, []).append(partition)
        if self._queues and not self._is_flushing:
            self._is_flushing = True
            self._call_soon(self._flush)
        if again:
            self._try_again(job, [partition for partition in partitions if self._has_no_leader(image, partition)])
        self._check_done(job)

    def _has_no_leader(self, image: Image, partition: TopicPartition) -> bool:
        found = image.topic(partition[0])
        state = None if found is None else found.partitions.get(partition[1])
        return state is not None and state.leader == NO_LEADER

    def _flush(self) -> None:
        self._is_flushing = False
        queues, self._queues = self._queues, {}
        for broker_id, jobs in queues.items():
            jobs = {job: partitions for job, partitions in jobs.items() if not job.is_dropped}
            if jobs:
                self._send_to(broker_id, jobs)

    def _send_to(self, broker_id: int, jobs: dict[_Job, list[TopicPartition]]) -> None:
        request = m.WriteTxnMarkersRequest(
            markers=[_marker(job.effect, partitions) for job, partitions in jobs.items()]
        )
        self._send(broker_id, request, lambda response: self._answered(jobs, response))

    def _answered(self, jobs: dict[_Job, list[TopicPartition]], response: m.WriteTxnMarkersResponse | None) -> None:
        errors = {} if response is None else _errors_of(response)
        for job, partitions in jobs.items():
            if job.is_dropped:
                continue
            again: list[tuple[TopicPartition, Error]] = []
            for partition in partitions:
                error = errors.get((job.effect.markers.producer_id, *partition), Error.NETWORK_EXCEPTION)
                if error in _DONE:
                    job.left.pop(partition, None)
                    if error:
                        logger.warning(
                            "%s: %s-%d needs no marker: %s", job.effect.transactional_id, *partition, error.text
                        )
                elif error is Error.TRANSACTION_COORDINATOR_FENCED:
                    self._drop(job, error)
                    break
                else:
                    again.append((partition, error))
            else:
                if again:
                    self._tell(job, again)
                    self._try_again(job, [partition for partition, _ in again])
                self._check_done(job)

    def _tell(self, job: _Job, again: list[tuple[TopicPartition, Error]]) -> None:
        if job.attempts % TELL_EVERY == TELL_EVERY - 1:
            (topic, index), error = again[0]
            logger.warning(
                "the transaction of %s is decided and not complete: %s-%d answers %s; it is tried again",
                job.effect.transactional_id,
                topic,
                index,
                error.name,
            )

    def _try_again(self, job: _Job, partitions: list[TopicPartition]) -> None:
        pause_ms = min(BACK_OFF_MS << min(job.attempts, 16), BACK_OFF_MAX_MS)
        job.attempts += 1
        self._waits.after_ms(pause_ms, lambda: self._again(job, partitions))

    def _again(self, job: _Job, partitions: list[TopicPartition]) -> None:
        if job.is_dropped:
            return
        if self._is_led(job.effect.transactional_id):
            self._enqueue(job, partitions)
        else:
            self._drop(job, Error.NOT_COORDINATOR)

    def _drop(self, job: _Job, why: Error) -> None:
        """The coordinator that has taken over sends them."""
        logger.info("%s: no more markers from here: %s", job.effect.transactional_id, why.text)
        job.is_dropped = True
        if self._jobs.get(job.effect.transactional_id) is job:
            del self._jobs[job.effect.transactional_id]

    def _check_done(self, job: _Job) -> None:
        if not job.left and not job.is_dropped:
            job.is_dropped = True
            del self._jobs[job.effect.transactional_id]
            self._written(job.effect)


def _marker(effect: WriteMarkers, partitions: list[TopicPartition]) -> m.WriteTxnMarkersRequest.WritableTxnMarker:
    kind = m.WriteTxnMarkersRequest
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return kind.WritableTxnMarker(
        producer_id=effect.markers.producer_id,
        producer_epoch=effect.markers.producer_epoch,
        transaction_result=effect.is_commit,
        topics=[
            kind.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()
        ],
        coordinator_epoch=effect.coordinator_epoch,
        transaction_version=effect.transaction_version,
    )


def _errors_of(response: m.WriteTxnMarkersResponse) -> dict[tuple[int, str, int], Error]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): Error.of(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
