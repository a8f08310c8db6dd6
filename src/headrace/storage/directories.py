"""The log directories of a node: where each partition is, where a new one goes, and what becomes of one that fails.

One that can't be used leaves the others in service; only a node without any can't start. A folder that belongs to
somebody else, or that another process uses, is a mistake of whoever starts the node, and nothing is touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from headrace.errors import Error, HeadraceError, Refused
from headrace.storage.checkpoint import TopicPartition
from headrace.storage.checkpoints import Written
from headrace.storage.disk import Disk, DiskError, DiskInUse
from headrace.storage.identity import WrongDirectory
from headrace.storage.log import Log
from headrace.storage.log_directory import LogDirectory
from headrace.storage.move import Move
from headrace.storage.ports import Ports
from headrace.storage.progress import Progress
from headrace.storage.shared import Shared

logger = logging.getLogger(__name__)


class Directories:
    __slots__ = ("_leaving", "_moves", "_ports", "_where", "all", "failed", "on_offline")

    def __init__(self, directories: Sequence[LogDirectory], ports: Ports) -> None:
        self._ports = ports
        self.all = list(directories)
        """In the order of log.dirs, those that went offline since the start included."""
        self.failed: dict[str, HeadraceError] = {}
        """Folders of log.dirs that could not be used at the start, and why."""
        self.on_offline: Callable[[LogDirectory], None] = lambda directory: None
        """Called when a directory goes offline, with all that is in it."""
        self._moves: dict[TopicPartition, Move] = {}
        self._leaving: dict[TopicPartition, Move] = {}
        """Moves that are done, whose copies' names are not durable yet."""
        self._where: dict[TopicPartition, LogDirectory] = {}

    @classmethod
    def open(
        cls,
        disks: Sequence[Disk],
        ports: Ports,
        shared: Shared,
        *,
        cluster_id: str,
        node_id: int,
        progress: Progress | None = None,
    ) -> Directories:
        """Claims all folders, then loads what is in them."""
        found = cls.claim(disks, ports, shared, cluster_id=cluster_id, node_id=node_id)
        found.load(progress)
        return found

    @classmethod
    def claim(
        cls, disks: Sequence[Disk], ports: Ports, shared: Shared, *, cluster_id: str, node_id: int
    ) -> Directories:
        """Takes the folders, so that no other process has them, and marks new ones as this node's.

        Raises DiskInUse and WrongDirectory, and the DiskError of the first folder when none can be used.
        """
        found = cls([], ports)
        failed: dict[str, DiskError] = {}
        try:
            for disk in disks:
                try:
                    found.all.append(
                        LogDirectory(
                            disk, ports, shared, cluster_id=cluster_id, node_id=node_id, on_offline=found._went_offline
                        )
                    )
                except DiskInUse:
                    raise
                except DiskError as error:
                    failed[disk.root] = error
            found._go_on_without(failed)
        except BaseException:
            found.abandon()
            raise
        return found

    def load(
        self, progress: Progress | None = None, topic_id_of: Callable[[str], bytes | None] = lambda topic: None
    ) -> None:
        """Opens what is in the folders. Blocks, as long as it takes to verify after an unclean stop.

        Raises the DiskError of the first folder when none can be used. `topic_id_of` says which topic has a name now.
        """
        failed: dict[str, DiskError] = {}
        try:
            for directory in list(self.all):
                try:
                    directory.load(progress)
                except DiskError as error:
                    self.all.remove(directory)
                    failed[directory.root] = error
            self._go_on_without(failed)
        except BaseException:
            self.abandon()
            raise
        self._find_all(topic_id_of)

    def abandon(self) -> None:
        """Lets go of the folders, without a word about what they hold."""
        for directory in self.all:
            directory.abandon()

    def _go_on_without(self, failed: Mapping[str, DiskError]) -> None:
        """Leaves these out. Where no folder is left, raises the error of the first, and says it by that alone."""
        self.failed |= failed
        raised = None if self.all else next(iter(self.failed))
        for root, error in failed.items():
            if root != raised:
                logger.error("log directory %s is left out: %s", root, error)
        if raised is not None:
            raise self.failed[raised]

    def _went_offline(self, directory: LogDirectory) -> None:
        if directory not in self.all:
            return  # it was left out at the start
        for key, move in list(self._moves.items()):
            if move.target_directory is directory or move.source_directory is directory:
                del self._moves[key]
                if move.target_directory is not directory:
                    self._cancel(move)
        self.on_offline(directory)

    def _cancel(self, move: Move) -> None:
        """Gives up a copy, as far as its disk lets."""
        try:
            move.cancel()
        except DiskError as error:
            logger.error("%s stays: %s", move.copy.place.full_path(""), error)

    def _find_all(self, topic_id_of: Callable[[str], bytes | None]) -> None:
        """A crash at the very end of a move leaves a partition in two directories: the one with more is kept.

        Two of different topics are no copies (hazard 9): one may have been in a directory that was offline when its
        topic was deleted, and is set aside. Where it is not known which is wanted, neither is served, and neither is
        touched.
        """
        for directory in self.all:
            for key in list(directory.logs):
                self._find(key, directory, topic_id_of)

    def _find(self, key: TopicPartition, directory: LogDirectory, topic_id_of: Callable[[str], bytes | None]) -> None:
        """Of one log that is open in a directory."""
        if self.awaits(*key):
            return  # the one that can't be opened yet may have more
        log, other = directory.logs[key], self._where.get(key)
        if other is None:
            self._where[key] = directory
        elif other.logs[key].topic_id != log.topic_id:
            self._choose(key, other, directory, topic_id_of(log.topic))
        elif other.logs[key].log_end_offset >= log.log_end_offset:
            _keep(key, other, directory)
        else:
            _keep(key, directory, other)
            self._where[key] = directory

    def _choose(self, key: TopicPartition, one: LogDirectory, two: LogDirectory, wanted: bytes | None) -> None:
        """Of two logs with different ids. One without lost it with the power, before it was ever flushed."""
        found = {directory.logs[key].topic_id: directory for directory in (one, two)}
        kept = found.get(wanted) if wanted is not None else None
        if kept is None and None in found:
            kept = found[None]
            if wanted is None:
                kept = one if kept is two else two
        if kept is not None:
            left = one if kept is two else two
            left.set_aside(left.logs[key])
            self._where[key] = kept
            return
        folders = [directory.disk.full_path(directory.logs[key].place.folder) for directory in (one, two)]
        error = WrongDirectory(
            f"{folders[0]} and {folders[1]} are of different topics with one name; "
            "move the one that is not wanted out of its log directory, then restart the node"
        )
        for directory in (one, two):
            directory.take_offline(directory.logs[key], error)
        del self._where[key]

    # --------------------------------------------------------------------------------------------------- what is there

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.all if directory.offline is None]

    def log(self, topic: str, partition: int) -> Log | None:
        directory = self._where.get((topic, partition))
        return None if directory is None else directory.logs[topic, partition]

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        return self._where.get((topic, partition))

    def why_offline(self, topic: str, partition: int) -> HeadraceError | None:
        """Why a partition that is here can't be used; None when it can, or is not here."""
        key = (topic, partition)
        directory = self._where.get(key)
        if directory is not None:
            return directory.offline or directory.logs[key].offline
        return next((found.offline_logs[key].why for found in self.all if key in found.offline_logs), None)

    def awaits(self, topic: str, partition: int) -> bool:
        """A partition that is here could not be opened, for a reason that passes."""
        return any(found.awaits((topic, partition)) for found in self.all)

    def logs(self) -> Iterator[Log]:
        for directory in self.all:
            yield from directory.logs.values()

    # --------------------------------------------------------------------------------------------- making and removing

    def create(self, topic: str, partition: int, topic_id: bytes, directory_id: bytes | None = None) -> Log:
        """A new log, in the directory that was asked for or in the one with the fewest. Raises Refused."""
        if self.awaits(topic, partition):
            raise Refused(
                Error.KAFKA_STORAGE_ERROR,
                f"{topic}-{partition} can't be opened yet: {self.why_offline(topic, partition)}",
            )
        if any((topic, partition) in found.logs for found in self.all):
            raise Refused(
                Error.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is in two log directories; restart the node."
            )
        online = self.online
        if directory_id is not None:
            online = [directory for directory in online if directory.id == directory_id]
        if not online:
            raise Refused(Error.KAFKA_STORAGE_ERROR, f"{topic}-{partition} has no log directory that is online.")
        directory = min(online, key=lambda found: len(found.logs) + self._moves_to(found))
        try:
            for other in self.all:
                if (topic, partition) in other.offline_logs:
                    other.make_way(topic, partition, topic_id)
            log = directory.create(topic, partition, topic_id)
        except DiskError as error:
            raise Refused(Error.KAFKA_STORAGE_ERROR, str(error)) from error
        self._where[topic, partition] = directory
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Gives up a partition, and a copy of it that is on its way."""
        key = (topic, partition)
        if key in self._moves:
            self.cancel_move(topic, partition)
        if key in self._leaving:
            self._leaving.pop(key).leave()
        directory = self._where.pop(key)
        directory.delete(directory.logs[key])

    def set_aside(self, topic: str, partition: int) -> None:
        """Gives up a partition that the node was not meant to have, and keeps its files."""
        directory = self._where.pop((topic, partition))
        directory.set_aside(directory.logs[topic, partition])

    def give_up(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Gives up a partition that is nowhere in service; what is here of it and offline goes."""
        if (topic, partition) not in self._where:
            for directory in self.online:
                directory.give_up(topic, partition, topic_id)

    # ------------------------------------------------------------------------------------------------ opening once more

    def reopen(
        self,
        directory: LogDirectory,
        topic_id_of: Callable[[str], bytes | None],
        done: Callable[[Log | None, HeadraceError | None], None],
    ) -> None:
        """Tries the next log of a directory that `awaits_logs`. `done` hears which can be used now, and what failed.

        Where a partition is twice, in two directories, neither can be used before both are open.
        """

        def tried(key: TopicPartition, error: HeadraceError | None) -> None:
            try:
                for found in self.all:
                    if key in found.logs and self._where.get(key) is not found:
                        self._find(key, found, topic_id_of)
            except DiskError as failure:  # the one that is in its place by now may be the wrong one
                self._where.pop(key, None)
                logger.error("%s-%d is in two log directories, and offline until a restart: %s", *key, failure)
            done(self.log(*key), error)

        directory.reopen(tried)

    def rest(self, done: Callable[[], None]) -> None:
        """Opens nothing any more, and calls `done` when no worker has anything of the directories in hand."""
        waiting = list(self.all)
        if not waiting:
            done()

        def rested(directory: LogDirectory) -> None:
            waiting.remove(directory)
            if not waiting:
                done()

        for directory in list(self.all):
            directory.rest(partial(rested, directory))

    # ---------------------------------------------------------------------------------------------------------- moving

    def move(self, topic: str, partition: int, directory_id: bytes) -> Move | None:
        """Begins to move a partition to another directory; None when it is there. The caller steps it."""
        key = (topic, partition)
        source = self._where.get(key)
        target = next((found for found in self.online if found.id == directory_id), None)
        if target is None:
            raise Refused(Error.LOG_DIR_NOT_FOUND, f"{topic}-{partition} can't move to a directory that is not online.")
        if source is None or source.offline is not None:
            raise Refused(Error.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is in no log directory that is online.")
        if key in self._moves:
            if self._moves[key].target_directory is target:
                return self._moves[key]
            self.cancel_move(topic, partition)
        if source is target:
            return None
        unique = self._ports.random_bytes(16).hex()
        move = Move(source.logs[key], source, target, unique, self._ports.now_ms())
        self._moves[key] = move
        return move

    def moving(self, topic: str, partition: int) -> Move | None:
        """The move of a partition that is under way."""
        return self._moves.get((topic, partition))

    def moves(self) -> Iterator[Move]:
        yield from self._moves.values()

    def may_finish(self, topic: str, partition: int) -> bool:
        """Not while the folder of the move before is still there: it may be in the way."""
        return (topic, partition) not in self._leaving

    def finish_move(self, topic: str, partition: int) -> Log:
        """Puts the copy in its place, when it `is_complete`; returns it."""
        key = (topic, partition)
        move = self._moves[key]
        log = move.finish()
        self._moves.pop(key, None)
        self._where[key] = move.target_directory
        self._leaving[key] = move

        def taken_over(error: DiskError | None) -> None:
            """After a failed sync both folders stay, and the next start chooses."""
            if self._leaving.get(key) is move:
                del self._leaving[key]
                if error is None and move.source_directory.offline is None:
                    try:
                        move.leave()
                    except DiskError as failure:
                        logger.error("%s-%d has moved, and its old folder stays: %s", topic, partition, failure)

        try:
            log.flush(taken_over)
        except (DiskError, Refused) as error:
            logger.error("%s-%d has moved, and its new folder is not durable: %s", topic, partition, error)
            self._leaving.pop(key, None)
        return log

    def cancel_move(self, topic: str, partition: int) -> None:
        """Gives up the copy, unless that was done already: a directory that goes offline takes its moves along."""
        move = self._moves.pop((topic, partition), None)
        if move is not None:
            move.cancel()

    def _moves_to(self, directory: LogDirectory) -> int:
        return sum(move.target_directory is directory for move in self._moves.values())

    # --------------------------------------------------------------------------------------------------- looking after

    def look_after(self) -> Iterator[None]:
        """Retention and removal, in small steps: the caller goes on when it has time."""
        for directory in self.online:
            yield from directory.look_after()

    def flush_due(self) -> Iterator[None]:
        """Flushes the logs whose flush.ms has passed, in small steps."""
        for directory in self.online:
            yield from directory.flush_due()

    def expire_producers(self, expiration_ms: int) -> Iterator[None]:
        """Forgets producers that were silent for long, in small steps."""
        for directory in self.online:
            yield from directory.expire_producers(expiration_ms)

    def when_start_is_durable(self, topic: str, partition: int, done: Written) -> None:
        """Calls `done` when a loss of power can't bring back what is before the log's start now.

        Before DeleteRecords is answered: who had records deleted may have had to. All that wait share a checkpoint.
        """
        self._where[topic, partition].checkpoints.write(done)

    def checkpoint(self) -> None:
        """Writes down how far the logs have come, away from the loop."""
        for directory in self.online:
            directory.checkpoints.write()

    def close(self, broker_epoch: int) -> None:
        """A clean stop. Blocks."""
        for move in self._moves.values():
            self._cancel(move)
        self._moves.clear()
        for directory in self.all:
            directory.close(broker_epoch)


def _keep(key: TopicPartition, directory: LogDirectory, other_directory: LogDirectory) -> None:
    """Of two copies: what was deleted from one of them does not come back with the other, nor with the next crash."""
    kept, other = directory.logs[key], other_directory.logs[key]
    kept.set_high_watermark(max(kept.high_watermark, other.high_watermark))
    if kept.log_start_offset < other.log_start_offset <= kept.high_watermark:
        kept.delete_before(other.log_start_offset)
        directory.checkpoints.write_starts()
    other_directory.delete(other)
