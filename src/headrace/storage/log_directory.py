"""One folder of log.dirs: whose it is, which logs are in it, and how far they had come.

It has a lock against another process, `meta.properties` against another cluster or node, a marker of a clean stop, and
checkpoints of all its logs together. A log that can't be opened is offline, and the others are not. When a sync fails,
the whole directory goes offline, and the directories beside it do not (hazard 8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from headrace.errors import HeadraceError, Refused
from headrace.storage import names
from headrace.storage.checkpoint import TopicPartition
from headrace.storage.checkpoints import Checkpoints, Written
from headrace.storage.claim import Claim
from headrace.storage.clean_stop import stop_cleanly
from headrace.storage.disk import Disk, DiskError, SyncFailed
from headrace.storage.expected_starts import ExpectedStarts
from headrace.storage.identity import PARTITION_METADATA, read_topic_id
from headrace.storage.last_stop import CHECKPOINTS, SYNC_FAILED
from headrace.storage.loading import Loading
from headrace.storage.log import Log
from headrace.storage.names import Fate
from headrace.storage.opening import open_in
from headrace.storage.partition_folder import put_topic_id, remove_folder
from headrace.storage.ports import Ports
from headrace.storage.predecessor import why_set_aside
from headrace.storage.progress import Progress
from headrace.storage.recovery import Saved
from headrace.storage.removals import Removals
from headrace.storage.reopening import OfflineLog, Reopening
from headrace.storage.reserve import is_scarce, require_room
from headrace.storage.shared import Shared

logger = logging.getLogger(__name__)


class LogDirectory:
    __slots__ = (
        "_claim",
        "_expected",
        "_flusher",
        "_offline",
        "_on_offline",
        "_ports",
        "_reopening",
        "_resting",
        "_shared",
        "_workers",
        "checkpoints",
        "clean_broker_epoch",
        "disk",
        "id",
        "logs",
        "offline_logs",
        "removals",
    )

    def __init__(
        self,
        disk: Disk,
        ports: Ports,
        shared: Shared,
        *,
        cluster_id: str,
        node_id: int,
        on_offline: Callable[[LogDirectory], None] = lambda directory: None,
    ) -> None:
        """Claims a folder for this node, and formats it if nobody has. Raises DiskInUse, WrongDirectory, DiskError."""
        self.disk = disk
        self._ports = ports
        self._shared = shared
        self._on_offline = on_offline
        self.logs: dict[TopicPartition, Log] = {}
        self._resting: list[Callable[[], None]] = []
        """Who wants to hear that no worker has anything of this directory in hand."""
        self.offline_logs: dict[TopicPartition, OfflineLog] = {}
        """Partitions that could not be opened. Those that wait for room are tried in this order."""
        self._offline: HeadraceError | None = None
        self.clean_broker_epoch: int | None = None
        """Of the last stop, when it was clean; None when it was not.

        None, too, when a partition has less than it had at that stop, or may have, as it was offline then (hazard 3).
        """
        self._claim = Claim(disk, cluster_id, node_id, ports.random_bytes)
        self.id = self._claim.directory_id
        self._flusher = ports.flusher_of(disk, self.go_offline)
        self._workers = ports.workers_of(disk)
        self._expected = ExpectedStarts()
        self.checkpoints = Checkpoints(
            disk,
            self._workers,
            ports.now_ms,
            logs=self.logs,
            offline_logs=self.offline_logs,
            expected=self._expected,
            why_offline=lambda: self.offline,
            go_offline=self.go_offline,
            ended=self._rest,
        )
        # Two of them: what is removed may be the room that what is opened waits for.
        removers = self._workers if ports.openers_of is None else ports.openers_of(disk)
        self.removals = Removals(disk, removers, self._rest)
        self._reopening = Reopening(
            disk,
            shared,
            self._flusher,
            self._workers if ports.openers_of is None else ports.openers_of(disk),
            ports.now_ms,
            offline=self.offline_logs,
            logs=self.logs,
        )
        disk.on_offline = self._sync_failed

    @property
    def root(self) -> str:
        return self.disk.root

    @property
    def offline(self) -> HeadraceError | None:
        """Why nothing here is promised any more: from the first failed sync on, whoever asked for it (hazard 8)."""
        return self._offline or self.disk.offline

    def load(self, progress: Progress | None = None) -> None:
        """Opens all logs."""
        now_ms = self._ports.now_ms()
        loading = Loading(self.disk, self._shared, self._flusher, logs=self.logs, offline_logs=self.offline_logs)
        self.checkpoints.found(loading.stop.offsets)
        loading.open_all(now_ms, progress)
        self.clean_broker_epoch = loading.clean_broker_epoch
        loading.settle()

    # -------------------------------------------------------------------------------------------- making and removing

    def create(
        self, topic: str, partition: int, topic_id: bytes, *, folder: str | None = None, is_future: bool = False
    ) -> Log:
        """A new, empty log. It is durable with the first flush; before that there is nothing in it to lose.

        Raises Refused for a partition that is here and offline, and DiskError, after which nothing is left of it.
        """
        self.disk.promise()
        key = (topic, partition)
        require_room(self.disk, folder or names.folder_name(*key), self._ports.now_ms())
        assert is_future or key not in self.logs, "a partition is made once"
        folder = folder or names.folder_name(topic, partition)
        if not is_future:
            self.make_way(topic, partition, topic_id)
            self._expected.drop_all_of(key)
        self.checkpoints.forget(key)
        self.disk.make_directory(folder)
        try:
            put_topic_id(self.disk, folder, topic_id)
            log = open_in(
                self.disk,
                folder,
                key,
                self._shared,
                self._flusher,
                saved=Saved(),
                now_ms=self._ports.now_ms(),
                topic_id=topic_id,
            )
        except DiskError:
            remove_folder(self.disk, folder)
            raise
        log.unsynced.is_new_folder = True
        log.unsynced.wrote([PARTITION_METADATA], with_batches=True)
        if not is_future:
            self.logs[key] = log
        return log

    def make_way(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Sets aside what is here under the name of a new log. Raises Refused where it is to stay."""
        key, folder = (topic, partition), names.folder_name(topic, partition)
        why = why_set_aside(self.disk, folder, topic_id, self.offline_logs.get(key))
        if why is not None:
            stray = self._mark(key, folder, Fate.STRAY)
            self.offline_logs.pop(key, None)
            logger.warning("%s %s; its files are left in %s", folder, why, self.disk.full_path(stray))

    def expect(self, log: Log, start_offset: int, done: Written) -> None:
        """A copy is to start there when it is taken in; `done` hears when that is written down."""
        self._expected.put(log, start_offset)
        self.checkpoints.write(done)

    def expect_no_more(self, log: Log) -> None:
        """A copy will not be taken in."""
        self._expected.drop(log)

    def adopt(self, log: Log) -> None:
        """Takes a copy that is complete in, under the name of its partition."""
        self.rename(log, names.folder_name(log.topic, log.partition))
        self.logs[log.topic, log.partition] = log
        self._expected.drop(log)

    def rename(self, log: Log, folder: str) -> None:
        """Gives the folder of a log another name."""
        self.disk.rename(log.place.folder, folder)
        log.place.folder = folder
        log.place.names_changed = log.unsynced.is_new_folder = True
        self._flusher.sync_names("")

    def let_go(self, log: Log) -> None:
        """A log has moved away, though its folder is still here: a start that finds no other takes it again."""
        del self.logs[log.topic, log.partition]
        self._expected.put(log, log.log_start_offset)

    def delete(self, log: Log) -> None:
        """Gives up a log. Its folder gets another name at once and is removed in time: readers finish.

        Where room is scarce that is at once: others wait for it.
        """
        key = (log.topic, log.partition)
        if self.logs.get(key) is log:
            del self.logs[key]
        self.rename(log, self._marked(key, Fate.DELETE))
        self._expected.drop(log)
        log.close()
        delay_ms = 0 if is_scarce(self.disk) else log.config.file_delete_delay_ms
        self.removals.doom(log.place.folder, self._ports.now_ms() + delay_ms)

    def set_aside(self, log: Log) -> None:
        """Gives up a log that the node was not meant to have, and keeps its files for the operator."""
        key = (log.topic, log.partition)
        self.logs.pop(key, None)
        self.rename(log, self._marked(key, Fate.STRAY))
        log.close()
        logger.warning("%s belongs to no topic of this node and is left alone", log.place.full_path(""))

    def take_offline(self, log: Log, error: HeadraceError) -> None:
        """Serves a log no longer that was opened, and leaves its files as they are."""
        key = (log.topic, log.partition)
        offsets = self.checkpoints.contents()
        point, start, mark, cleaned = (offsets[name].get(key, 0) for name in CHECKPOINTS)
        del self.logs[key]
        log.close()
        logger.error("%s-%d is offline: %s", *key, error)
        self.offline_logs[key] = OfflineLog(error, Saved(False, point, start, mark, cleaned))

    def _mark(self, key: TopicPartition, folder: str, fate: Fate) -> str:
        """Renames a folder whose log is not open by what becomes of it; returns its new name."""
        marked = self._marked(key, fate)
        self.disk.rename(folder, marked)
        self._flusher.sync_names("")
        return marked

    def _marked(self, key: TopicPartition, fate: Fate) -> str:
        return names.marked_folder_name(*key, fate, self._ports.random_bytes(16).hex())

    # ---------------------------------------------------------------------------------------------- opening once more

    @property
    def awaits_logs(self) -> bool:
        """Some could not be opened for a reason that passes."""
        return self._reopening.next() is not None

    def awaits(self, key: TopicPartition) -> bool:
        found = self.offline_logs.get(key)
        return found is not None and found.is_awaited

    def reopen(self, done: Callable[[TopicPartition, HeadraceError | None], None]) -> None:
        """Tries the next of the logs that it `awaits_logs` of, away from the loop; `done` hears which, and why not."""
        key = self._reopening.next()
        assert key is not None, "there is a log to open"

        def tried(error: HeadraceError | None) -> None:
            done(key, error)
            self._rest()

        self._reopening.begin(key, tried)

    def give_up(self, topic: str, partition: int, topic_id: bytes) -> None:
        """The node is to have this partition no longer, which is offline: its folder goes, if it is known to be its."""
        key, folder = (topic, partition), names.folder_name(topic, partition)
        if self._reopening.key == key:
            self._reopening.then = lambda: self._give_up(key, folder, topic_id)
        else:
            self._give_up(key, folder, topic_id)

    def _give_up(self, key: TopicPartition, folder: str, topic_id: bytes) -> None:
        try:
            if key in self.logs:  # it was opened meanwhile
                if self.logs[key].topic_id == topic_id:
                    self.delete(self.logs[key])
            elif key in self.offline_logs and read_topic_id(self.disk, folder) == topic_id:
                doomed = self._mark(key, folder, Fate.DELETE)
                del self.offline_logs[key]
                self.removals.doom(doomed, self._ports.now_ms())
        except HeadraceError as error:
            logger.error("%s can't be deleted: %s", self.disk.full_path(folder), error)

    def rest(self, done: Callable[[], None]) -> None:
        """Opens nothing any more, and calls `done` when no worker has anything of this directory in hand."""
        self.removals.stop()
        self._reopening.stop()
        self._resting.append(done)
        self._rest()

    def _rest(self) -> None:
        if self._reopening.key is None and self.checkpoints.is_idle and self.removals.is_idle:
            resting, self._resting = self._resting, []
            for rested in resting:
                rested()

    # --------------------------------------------------------------------------------------------------- looking after

    def look_after(self) -> Iterator[None]:
        """Retention and what is left to remove, one log at a time: the caller goes on when it has time."""
        now_ms = self._ports.now_ms()
        is_urgent = is_scarce(self.disk)
        for log in list(self.logs.values()):
            if self.offline is None and log.offline is None:
                self._retain(log, now_ms)
                if paths := log.take_doomed() if is_urgent else log.take_doomed(now_ms):
                    self.removals.remove_files(paths)
            yield
        yield from self.removals.remove_due(now_ms)

    def make_room(self, logs: Iterable[Log], done: Callable[[], None]) -> None:
        """Removes at once what these logs need no more, for who has to write a little onto a full disk."""
        now_ms = self._ports.now_ms()
        paths: list[str] = []
        for log in logs:
            if self.offline is None and log.offline is None:
                self._retain(log, now_ms, is_urgent=True)
                paths += log.take_doomed()
        self.removals.remove_files(paths, done)

    def _retain(self, log: Log, now_ms: int, *, is_urgent: bool = False) -> None:
        try:
            if is_urgent and log.log_start_offset == log.log_end_offset:  # what is being written goes too
                self.disk.with_reserve(lambda: log.roll(now_ms))
            log.retain(now_ms)
        except (DiskError, Refused) as error:
            logger.error("%s can't be looked after: %s", log.place.folder, error)

    def expire_producers(self, expiration_ms: int) -> Iterator[None]:
        """Forgets producers that were silent for long, one log at a time."""
        now_ms = self._ports.now_ms()
        for log in list(self.logs.values()):
            if len(log.producers):
                log.producers.remove_expired(now_ms, expiration_ms)
                yield

    def flush_due(self) -> Iterator[None]:
        """Flushes the logs whose flush.ms has passed, one at a time."""
        now_ms = self._ports.now_ms()
        for log in list(self.logs.values()):
            if self.offline is None and log.offline is None and log.is_flush_due(now_ms):
                log.flush(_ignore)
                log.last_flush_ms = now_ms
                yield

    def begin_flushes(self) -> None:
        """Those that were asked for, now: something that takes long follows, or nobody who could join them."""
        self._flusher.hurry()

    # ---------------------------------------------------------------------------------------------------------- ending

    def go_offline(self, error: HeadraceError) -> None:
        """Nothing here is promised any more until a restart. What can be written says so to that."""
        if self._offline is not None:
            return
        self._offline = error
        logger.error("log directory %s is offline with %d partitions: %s", self.root, len(self.logs), error)
        if isinstance(error, SyncFailed):
            self._mark_sync_failed()
        self._on_offline(self)

    def _sync_failed(self, failure: SyncFailed) -> None:
        """The disk tells, in the thread that synced: the next start knows at once, the others on the loop."""
        self._mark_sync_failed()
        self._workers.run(lambda: None, lambda result, error: self.go_offline(failure))

    def _mark_sync_failed(self) -> None:
        with suppress(DiskError):
            self.disk.open(SYNC_FAILED, create=True).close()

    def close(self, broker_epoch: int) -> None:
        """A clean stop: writes everything, syncs it, says so, and gives the folder back. Blocks."""
        try:
            if self.offline is None:
                stop_cleanly(
                    self.disk,
                    broker_epoch,
                    self._flusher,
                    self.checkpoints,
                    logs=self.logs,
                    offline_logs=self.offline_logs,
                    expected=self._expected,
                )
        except DiskError as error:
            logger.error("log directory %s could not be closed cleanly: %s", self.root, error)
        finally:
            for log in self.logs.values():
                log.close()
            self._claim.release()

    def abandon(self) -> None:
        """Gives the folder back as it was: the node does not start."""
        if self.clean_broker_epoch is not None:
            self.close(self.clean_broker_epoch)
            return
        for log in self.logs.values():
            log.close()
        self._claim.release()


def _ignore(error: DiskError | None) -> None:
    """The flusher tells of a failure."""
