"""Partitions on their way to another log directory, while they are in use (KIP-113).

A copy takes what it does not have yet in small pieces, which a worker reads, with pauses in between. When little is
left, it is flushed; what was appended meanwhile is little too, and copied in one go. For that moment the source is not
flushed any more: what was promised to be on the disk is on both when the copy takes over, or nobody was told yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from headrace.errors import Error, HeadraceError, Refused
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.storage.disk import DiskError
from headrace.storage.move import Move
from headrace.storage.read import Fetched
from headrace.storage.throttle import Throttle
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

STEP_BYTES: Final = 256 << 10
LITTLE_BYTES: Final = 64 << 10
"""A copy that got so little has caught up. To wait until nothing is left is to wait for a pause of those who write."""
PAUSE_MS: Final = 1
LAST_BYTES: Final = 4 << 20
"""What is appended during a flush may be so much; when it is more, the copy goes on as before."""
TRIES_MAX: Final = 5
"""How often in a row the copy is flushed while the source is not."""
AGAIN_AFTER_MS: Final = 20
HALTED_MS: Final = 1000
"""Moves that may copy nothing look after this whether they may again."""


class Moves:
    __slots__ = ("_replicas", "_throttle", "_workers")

    def __init__(self, replicas: Replicas, workers: Workers, bytes_per_second: int) -> None:
        """The workers read what is copied, and all moves together copy so much a second at most."""
        self._replicas = replicas
        self._workers = workers
        self._throttle = Throttle(bytes_per_second)

    def configure(self, bytes_per_second: int) -> None:
        if self._throttle.bytes_per_second != bytes_per_second:
            self._throttle = Throttle(bytes_per_second)

    def begin(self, partition: Partition, directory_id: bytes) -> None:
        """Returns at once. A move to another directory is given up for this one. Raises Refused."""
        directories = self._replicas.directories
        before = directories.moving(partition.topic, partition.index)
        try:
            move = directories.move(partition.topic, partition.index, directory_id)
        except DiskError as error:
            raise Refused(Error.KAFKA_STORAGE_ERROR, str(error)) from error
        if move is not None and move is not before:
            logger.info("%s begins to move to %s", partition, move.target_directory.root)
            self._step(partition, move)

    # --- copying ------------------------------------------------------------------------------------------------------

    def _step(self, partition: Partition, move: Move) -> None:
        if self._is_over(partition, move):
            return
        if self._throttle.bytes_per_second == 0:
            self._after(HALTED_MS, lambda: self._step(partition, move))
            return
        try:
            fetched = move.fetch(STEP_BYTES, self._replicas.now_ms())
        except HeadraceError as error:
            self._give_up(partition, move, error)
            return
        if fetched is None:
            self._close_in(partition, move, 1)
        else:
            self._workers.run(partial(_read, fetched), partial(self._read, partition, move, fetched))

    def _read(
        self, partition: Partition, move: Move, fetched: Fetched, content: bytes | None, error: BaseException | None
    ) -> None:
        fetched.release()
        if self._is_over(partition, move):
            return
        if error is not None:
            self._give_up(partition, move, error)
            return
        try:
            move.append(content or b"", self._replicas.now_ms())
        except HeadraceError as failure:
            self._give_up(partition, move, failure)
            return
        size_bytes = len(content or b"")
        pause_ms = int(self._throttle.pause_s(size_bytes, self._replicas.now_ms() / 1000) * 1000)
        if size_bytes <= LITTLE_BYTES and move.is_in_last_segment and pause_ms <= PAUSE_MS:
            self._close_in(partition, move, 1)
        else:
            self._after(max(PAUSE_MS, pause_ms), lambda: self._step(partition, move))

    # --- taking over --------------------------------------------------------------------------------------------------

    def _close_in(self, partition: Partition, move: Move, tries: int) -> None:
        """Nothing is left to copy at this moment."""
        self._replicas.hold_flushes(partition)
        try:
            move.flush(lambda error: self._flushed(partition, move, tries, error))
        except HeadraceError as error:
            self._give_up(partition, move, error)

    def _flushed(self, partition: Partition, move: Move, tries: int, error: DiskError | None) -> None:
        if self._is_over(partition, move):
            return
        now_ms, directories = self._replicas.now_ms(), self._replicas.directories
        try:
            if error is not None:
                raise error
            if move.step(LAST_BYTES, now_ms):
                self._go_on_later(partition, move, PAUSE_MS)
            elif not directories.may_finish(partition.topic, partition.index):
                self._go_on_later(partition, move, AGAIN_AFTER_MS)
            elif move.is_complete:
                self._replicas.moved(partition, directories.finish_move(partition.topic, partition.index))
                self._replicas.release_flushes(partition)
            elif not move.is_start_durable:
                self._replicas.release_flushes(partition)
                move.write_start(partial(self._wrote_start, partition, move))
            elif tries < TRIES_MAX:  # a flush of the source that was under way has ended in between
                self._close_in(partition, move, tries + 1)
            else:
                self._go_on_later(partition, move, AGAIN_AFTER_MS)
        except HeadraceError as failure:
            self._give_up(partition, move, failure)

    def _wrote_start(self, partition: Partition, move: Move, error: BaseException | None) -> None:
        if error is not None and not self._is_over(partition, move):
            self._give_up(partition, move, error)
        else:
            self._step(partition, move)

    def _go_on_later(self, partition: Partition, move: Move, pause_ms: int) -> None:
        self._replicas.release_flushes(partition)
        self._after(pause_ms, lambda: self._step(partition, move))

    # --- ending -------------------------------------------------------------------------------------------------------

    def _is_over(self, partition: Partition, move: Move) -> bool:
        """It was given up: for another one, with its partition, with a directory that failed, or with the node."""
        replicas = self._replicas
        if (
            not replicas.is_stopped
            and replicas.hosts(partition)
            and replicas.directories.moving(partition.topic, partition.index) is move
        ):
            return False
        self._replicas.release_flushes(partition)
        return True

    def _give_up(self, partition: Partition, move: Move, error: BaseException) -> None:
        """The partition stays where it is, in service; its copy is removed."""
        logger.error("%s can't move to %s: %s", partition, move.target_directory.root, error)
        try:
            self._replicas.directories.cancel_move(partition.topic, partition.index)
        except DiskError as failure:
            logger.error("the copy of %s in %s stays: %s", partition, move.target_directory.root, failure)
        self._replicas.release_flushes(partition)

    def _after(self, pause_ms: int, callback: Callable[[], None]) -> None:
        self._replicas.waits.after_ms(pause_ms, callback)


def _read(fetched: Fetched) -> bytes:
    return b"".join(piece.file.read(piece.position, piece.size_bytes) for piece in fetched.pieces)
