"""A node: controller and broker in one process. The only place where the parts meet.

It starts from the bottom up: the folders are claimed, the metadata log is read and a leader found, the logs are opened
and the partitions hosted, the listeners bound, the broker registered, and then clients let in. It stops from the top
down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.cluster import Cluster
from headrace.broker.coordinators import Coordinators
from headrace.broker.directory_assignments import DirectoryAssignments
from headrace.broker.dynamic_config import (
    CleanerWorkers,
    DynamicConfig,
    follow_connections,
    follow_moves,
    follow_topics,
    follow_transactions,
    follow_upkeep,
)
from headrace.broker.fetch import Fetch
from headrace.broker.fetch_memory import ReplyMemory
from headrace.broker.fetch_session import Sessions
from headrace.broker.forward import Forward
from headrace.broker.later import later
from headrace.broker.lifecycle import Lifecycle
from headrace.broker.listeners import Listeners
from headrace.broker.observation import Observation
from headrace.broker.ports import NodePorts, SteadyClock
from headrace.broker.produce import Produce
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.router import Route, Router, Serves
from headrace.broker.senders import Senders
from headrace.broker.topic_metadata import TopicMetadata
from headrace.broker.topics import Topics
from headrace.config import NodeConfig
from headrace.errors import HeadraceError
from headrace.metadata.dynamic import Dynamic
from headrace.metadata.features import SUPPORTED
from headrace.metadata.image import Endpoint
from headrace.metadata.service import Member, MetadataPorts, MetadataService, format_metadata
from headrace.metadata.topics import TopicDefaults
from headrace.metrics.requests import ErrorCounts, Stopwatch
from headrace.raft.metadata_log import FOLDER, has_records, is_formatted
from headrace.replica.manager import Replicas
from headrace.replica.moves import Moves
from headrace.replica.topic_settings import TopicSettings
from headrace.replica.upkeep import Upkeep
from headrace.replica.waits import Waits
from headrace.storage.cleaner import Cleaner
from headrace.storage.directories import Directories
from headrace.storage.disk import Disk, SyncFailed
from headrace.storage.flusher import Flusher
from headrace.storage.handles import Handles
from headrace.storage.identity import MetaProperties, id_text
from headrace.storage.index import IndexCache
from headrace.storage.log_directory import LogDirectory
from headrace.storage.log_options import LogOptions
from headrace.storage.names import METADATA_TOPIC, Fate, parse_folder
from headrace.storage.ports import Ports as StoragePorts
from headrace.storage.progress import Progress
from headrace.storage.shared import Shared

if TYPE_CHECKING:
    from headrace.broker.configs import Configs
    from headrace.broker.delete_records import DeleteRecords
    from headrace.broker.log_dirs import LogDirs
    from headrace.broker.offsets import Offsets
    from headrace.broker.partitions import TopicPartitions
    from headrace.broker.producers import Producers
    from headrace.broker.reassignments import Reassignments
    from headrace.broker.security import Security

logger = logging.getLogger(__name__)

INDEX_BYTES: Final = 16 << 20
"""The indexes of closed segments that are kept in memory."""
STOP_GRACE_SECONDS: Final = 1.0
LEAVE_SECONDS: Final = 5.0


class Node:
    """Start it, and stop it, once. `failed` is done when it can't keep its promises any more and is to stop."""

    __slots__ = (
        "_assignments",
        "_clock_ns",
        "_config",
        "_coordinators",
        "_directories",
        "_disks",
        "_dynamic",
        "_flushers",
        "_lifecycle",
        "_listeners",
        "_loop",
        "_metadata",
        "_metadata_home",
        "_now_ms",
        "_observation",
        "_on_sync_failed",
        "_ports",
        "_replicas",
        "_upkeep",
        "cluster_id",
        "failed",
        "id",
    )

    def __init__(self, config: NodeConfig, ports: NodePorts) -> None:
        """In the loop that it will run in."""
        self._config = config
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        self._now_ms = SteadyClock(ports.now_ms)
        loop_time = self._loop.time
        self._clock_ns = ports.clock_ns or (lambda: int(loop_time() * 1e9))
        self.id = config.identity.node_id
        self.cluster_id = ""
        self.failed: asyncio.Future[HeadraceError] = self._loop.create_future()
        self._observation = Observation(config.http, ports, self._clock_ns, self)
        self._flushers: dict[Disk, Flusher] = {}
        self._on_sync_failed: dict[Disk, list[Callable[[SyncFailed], None]]] = {}
        self._disks: list[Disk] = []
        self._directories: Directories | None = None
        self._dynamic = DynamicConfig(Dynamic(config, config.identity.node_id))
        self._metadata: MetadataService | None = None
        self._metadata_home: LogDirectory | None = None
        self._replicas: Replicas | None = None
        self._coordinators: Coordinators | None = None
        self._upkeep: Upkeep | None = None
        self._lifecycle: Lifecycle | None = None
        self._assignments: DirectoryAssignments | None = None
        self._listeners: Listeners | None = None

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where clients are told to connect, once it has started."""
        return [] if self._listeners is None else self._listeners.endpoints

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Where metrics and health are told, once it starts; None when they are not."""
        return self._observation.address

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients are served. After a failure, `stop` gives back what was taken."""
        starting = self._loop.create_task(self._start())
        awaited: list[asyncio.Future[Any]] = [starting, self.failed]
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not starting.done():
                starting.cancel()
                await asyncio.wait([starting])
        if self.failed.done():  # it would wait for the controller for ever
            if not starting.cancelled():
                starting.exception()  # which is the same failure, or follows from it
            raise self.failed.result()
        starting.result()

    async def _start(self) -> None:
        config, ports = self._config, self._ports
        await self._observation.start()
        listeners = self._listeners = Listeners(
            config.listener, config.request, ports.host_name, Stopwatch(self._clock_ns)
        )
        await listeners.bind()  # before anything is touched on the disks
        disks = self._disks
        for folder in config.storage.log_dirs:
            disks.append(ports.disk_of(folder))
        self.cluster_id = _cluster_of(disks) or id_text(ports.random_bytes(16))
        handles, indexes = Handles(ports.open_files), IndexCache(INDEX_BYTES)
        settings = TopicSettings(config.log)
        directories = self._directories = Directories.claim(
            disks,
            StoragePorts(
                now_ms=self._now_ms,
                random_bytes=ports.random_bytes,
                flusher_of=self._flusher_of,
                workers_of=lambda disk: ports.workers_of("checkpoints"),
                openers_of=lambda disk: ports.workers_of("logs"),
            ),
            Shared(handles, indexes, self._log_options(), settings.of),
            cluster_id=self.cluster_id,
            node_id=self.id,
        )
        home = self._metadata_home = self._metadata_directory(disks, directories)
        metadata = self._metadata = self._open_metadata(home, handles, indexes)
        await metadata.start()
        if self.failed.done():  # nothing is to be done with folders on the word of metadata that failed
            raise self.failed.result()
        loader, dynamic = metadata.loader, self._dynamic
        dynamic.follow(loader.image)
        config = dynamic.config
        settings.set_defaults(config.log, loader.image)
        directories.load(self._progress(), loader.image.topic_ids.get)
        waits = Waits(self._loop.call_at, self._loop.time)
        cleaner_workers = CleanerWorkers(ports.workers_of)
        replicas = self._replicas = Replicas(
            self.id,
            directories,
            settings,
            waits,
            now_ms=self._now_ms,
            call_soon=self._loop.call_soon,
            cleaner=self._make_cleaner(directories, cleaner_workers),
        )
        assignments = self._assignments = DirectoryAssignments(metadata.channel, replicas, self._broker_epoch)
        loader.subscribe(replicas.apply)
        follow_topics(dynamic, settings, replicas)
        cleaner_workers.follow(dynamic, replicas)
        loader.subscribe(dynamic.apply)
        lifecycle = self._lifecycle = Lifecycle(
            metadata.channel,
            loader,
            self.id,
            ports.random_bytes(16),
            config.quorum.broker_heartbeat_interval_ms,
            self._offline_directories,
            self._fail,
        )
        replicas.on_offline = self._directory_offline
        memory = ReplyMemory(config.fetch.fetch_replies_max_bytes, self._loop.call_soon)
        router = self._router(metadata, replicas, lifecycle, memory)
        memory.on_full = listeners.relieve
        listeners.configure(config.listener)
        follow_connections(dynamic, listeners)
        await lifecycle.start(
            cluster_id=self.cluster_id,
            endpoints=listeners.endpoints,
            features=SUPPORTED,
            rack=config.identity.broker_rack or None,
            directories=[directory.id for directory in directories.all],
            previous_epoch=self._previous_epoch(directories),
        )
        assignments.start()
        await listeners.serve(router.handle)
        self._observation.serving(metadata, replicas, router, listeners, self._flushers, memory)
        upkeep = self._upkeep = Upkeep(replicas, settings, config.storage, waits, call_soon=self._loop.call_soon)
        follow_upkeep(dynamic, upkeep)
        upkeep.start()
        logger.info("node %d of cluster %s is ready", self.id, self.cluster_id)

    def _metadata_directory(self, disks: Sequence[Disk], directories: Directories) -> LogDirectory:
        folders, folder = self._config.storage.log_dirs, self._config.identity.metadata_log_dir
        if folder and folder not in folders:
            raise HeadraceError(f"metadata.log.dir is {folder}, and it must be one of log.dirs; add it there.")
        disk = disks[folders.index(folder) if folder else 0]
        directory = next((found for found in directories.all if found.disk is disk), None)
        if directory is None:
            raise directories.failed[disk.root]
        held = None if has_records(disk) else _a_partition_of(directories)
        if held is not None:
            lost = "has lost its log" if is_formatted(disk) else "is missing"
            raise HeadraceError(
                f"{disk.full_path(FOLDER)} {lost}, and {held} is there, so its topics would be forgotten; restore "
                "the folder, or move the partitions away."
            )
        return directory

    def _open_metadata(self, directory: LogDirectory, handles: Handles, indexes: IndexCache) -> MetadataService:
        config, ports = self._config, self._ports
        member = Member(
            cluster_id=self.cluster_id,
            node_id=self.id,
            directory_id=directory.id,
            incarnation_id=ports.random_bytes(16),
        )
        if format_metadata(directory.disk, member, self._now_ms()):
            logger.info("%s is new: it is node %d of cluster %s", directory.root, self.id, self.cluster_id)
        return MetadataService(
            member,
            MetadataPorts(
                disk=directory.disk,
                flusher=self._flusher_of(directory.disk, lambda failure: None),
                workers=ports.workers_of("metadata"),
                handles=handles,
                indexes=indexes,
                now_ms=self._now_ms,
                call_later=self._loop.call_later,
                random_bytes=ports.random_bytes,
                choose=ports.choose,
                clock_ns=self._clock_ns,
            ),
            config=config.quorum,
            defaults=TopicDefaults(config.topics.num_partitions, config.topics.default_replication_factor, config.log),
            failed=self._fail,
            started_with=config,
        )

    def _router(
        self, metadata: MetadataService, replicas: Replicas, lifecycle: Lifecycle, memory: ReplyMemory
    ) -> Router:
        loader, config = metadata.loader, self._config
        cluster = Cluster(loader, self.cluster_id, dict(SUPPORTED))
        chosen = self._observation.chosen()
        configs: Configs = later(
            "headrace.broker.configs:Configs", loader, metadata.channel, self._dynamic.dynamic, chosen
        )
        topics = Topics(metadata.channel, configs.topic, deletes=config.topics.delete_topic_enable)
        producer_ids = ProducerIds(metadata.channel, self.id, lambda: lifecycle.epoch)
        coordinators = self._coordinators = Coordinators(
            config,
            loader,
            replicas,
            metadata.channel,
            producer_ids,
            is_registered=lifecycle.is_registered,
            workers=self._ports.workers_of("loads"),
            matchers=self._ports.workers_of("patterns"),
            random_bytes=self._ports.random_bytes,
            call_soon=self._loop.call_soon,
        )
        follow_transactions(self._dynamic, coordinators.transactions)
        topic_metadata = TopicMetadata(
            loader,
            self.cluster_id,
            coordinators.creates(topics) if config.topics.auto_create_topics_enable else None,
        )
        forward = Forward(metadata.channel)
        moves = Moves(
            replicas,
            self._ports.workers_of("moves"),
            config.storage.replica_alter_log_dirs_io_max_bytes_per_second,
        )
        follow_moves(self._dynamic, moves)
        log_dirs: LogDirs = later("headrace.broker.log_dirs:LogDirs", replicas, moves)
        security: Security = later("headrace.broker.security:Security", loader)
        delete_records: DeleteRecords = later("headrace.broker.delete_records:DeleteRecords", replicas)
        reassignments: Reassignments = later("headrace.broker.reassignments:Reassignments", loader)
        producers: Producers = later("headrace.broker.producers:Producers", replicas)
        topic_partitions: TopicPartitions = later(
            "headrace.broker.partitions:TopicPartitions", loader, config.request.max_request_partition_size_limit
        )
        produce = Produce(replicas, self._ports.workers_of("recompression"), coordinators.transactions.verifier)
        workers = self._ports.workers_of("reads")
        senders = Senders(self._ports.senders, self._ports.cores, self._loop.time)
        fetch = Fetch(
            replicas,
            Sessions(
                self._ports.random_bytes,
                capacity=config.fetch.max_incremental_fetch_session_cache_slots,
                eviction_ms=config.fetch.min_incremental_fetch_session_eviction_ms,
            ),
            memory,
            workers,
            fetch_max_bytes=config.fetch.fetch_max_bytes,
            senders=senders,
        )
        self._observation.watch(produce, fetch)
        errors = ErrorCounts()
        offsets: Offsets = later("headrace.broker.offsets:Offsets", replicas, workers, errors)
        produce_route = Route("Produce", produce.handle, errors=produce.errors, is_scanned=False)
        produce.figures = senders.produced = produce_route.figures
        fetch_route = Route("Fetch", fetch.handle, errors=fetch.errors, is_scanned=False)
        fetch.figures = fetch_route.figures
        routes = [
            produce_route,
            fetch_route,
            Route("ListOffsets", offsets.list, errors=errors["ListOffsets"]),
            Route("Metadata", topic_metadata.handle),
            Route("ApiVersions", cluster.api_versions),
            *self._observation.routes(metadata, self._now_ms),
            Route("CreateTopics", topics.create),
            Route("DeleteTopics", topics.delete),
            Route("DeleteRecords", delete_records.handle),
            Route("AlterReplicaLogDirs", log_dirs.alter),
            Route("DescribeLogDirs", log_dirs.describe),
            Route("OffsetForLeaderEpoch", offsets.for_leader_epoch),
            Route("DescribeAcls", security.describe_acls),
            Route("CreateAcls", security.create_acls),
            Route("DeleteAcls", security.delete_acls),
            Route("DescribeConfigs", configs.describe),
            Route("AlterConfigs", configs.alter),
            Route("CreatePartitions", forward.handle),
            Route("ElectLeaders", forward.handle),
            Route("IncrementalAlterConfigs", configs.alter_incrementally),
            Route("AlterPartitionReassignments", forward.handle),
            Route("ListPartitionReassignments", reassignments.list),
            Route("DescribeClientQuotas", security.describe_quotas),
            Route("DescribeUserScramCredentials", security.describe_scram),
            Route("DescribeQuorum", forward.handle),
            Route("UpdateFeatures", forward.handle),
            Route("DescribeCluster", cluster.describe),
            Route("DescribeProducers", producers.describe),
            Route("UnregisterBroker", forward.handle),
            Route("ListConfigResources", configs.list),
            Route("DescribeTopicPartitions", topic_partitions.describe),
            *coordinators.routes(),
        ]
        router = Router(routes, Serves.CLIENTS, self._loop, config.request.socket_request_max_elements)
        cluster.router = router
        return router

    def _make_cleaner(self, directories: Directories, workers: CleanerWorkers) -> Cleaner | None:
        config, ports = self._dynamic.config.cleaner, self._ports
        if not config.log_cleaner_enable:
            return None
        return Cleaner(
            directories.logs,
            config,
            ports.clean,
            workers.take(config.log_cleaner_threads),
            now_ms=self._now_ms,
            call_later=self._loop.call_later,
            secret=lambda: ports.random_bytes(16),
            on_rest=ports.rest,
        )

    def _log_options(self) -> LogOptions:
        choose = self._ports.choose
        return LogOptions(
            jitter_ms=lambda most_ms: choose(most_ms + 1),
            decompressed_bytes_max=self._config.request.record_batch_max_decompressed_bytes,
        )

    def _progress(self) -> Progress:
        def report(progress: Progress) -> None:
            logger.info(
                "opened %d of %d logs, and verified %.1f MB of what the last stop left",
                progress.logs_done,
                progress.logs_total,
                progress.verified_bytes / 1e6,
            )

        return Progress(report, self._loop.time)

    def _flusher_of(self, disk: Disk, on_offline: Callable[[SyncFailed], None]) -> Flusher:
        """One for each disk, whoever uses it: the metadata and the partitions share their group commits."""
        told = self._on_sync_failed.setdefault(disk, [])
        told.append(on_offline)
        if disk not in self._flushers:

            def went_offline(failure: SyncFailed) -> None:
                for tell in told:
                    tell(failure)

            self._flushers[disk] = Flusher(
                disk,
                self._ports.workers_of("flusher"),
                call_soon=self._loop.call_soon,
                clock=lambda: self._clock_ns() / 1e9,
                on_offline=went_offline,
                behind_of=self._ports.behind_of,
                headroom_of=self._ports.headroom_of,
                syncs_of=self._ports.syncs_of,
            )
        return self._flushers[disk]

    # --- what may happen ----------------------------------------------------------------------------------------------

    def _fail(self, failure: HeadraceError) -> None:
        if not self.failed.done():
            logger.error("the node stops: %s", failure)
            self.failed.set_result(failure)

    def _broker_epoch(self) -> int:
        return -1 if self._lifecycle is None else self._lifecycle.epoch

    def _directory_offline(self, directory: LogDirectory) -> None:
        if directory is self._metadata_home:
            # Not when something is to be written next: until then everybody would be sent here, and refused.
            assert directory.offline is not None
            self._fail(directory.offline)
        elif self._lifecycle is not None:
            self._lifecycle.beat_now()

    def _offline_directories(self) -> list[bytes]:
        assert self._directories is not None
        return [directory.id for directory in self._directories.all if directory.offline is not None]

    def _previous_epoch(self, directories: Directories) -> int:
        """Of the last stop, when that was clean in every directory; -1 tells the controller that it was not."""
        epochs = [directory.clean_broker_epoch for directory in directories.all]
        clean = [epoch for epoch in epochs if epoch is not None]
        return max(clean, default=-1) if len(clean) == len(epochs) else -1

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Cleanly: what was appended is on the disk, and the next start checks nothing."""
        self._observation.stopping()
        if self._lifecycle is not None and not self.failed.done():
            await self._lifecycle.stop(LEAVE_SECONDS)
        if self._assignments is not None:
            self._assignments.stop()
        if self._upkeep is not None:
            self._upkeep.stop()
        if self._coordinators is not None:
            self._coordinators.stop()
        if self._replicas is not None:
            self._replicas.stop()
        if self._listeners is not None:
            await self._listeners.stop(STOP_GRACE_SECONDS)
        if self._metadata is not None:
            self._metadata.stop()
        if self._directories is not None:
            await _rest(self._directories)
        for flusher in self._flushers.values():
            await _rest(flusher)
        if self._directories is not None:
            if self._lifecycle is not None and self._lifecycle.epoch >= 0:
                self._directories.close(self._lifecycle.epoch)
                logger.info("the node has stopped")
            else:
                self._directories.abandon()
        await self._observation.stop()
        self._ports.stop()
        for disk in self._disks:
            disk.close()


async def _rest(worker: Directories | Flusher) -> None:
    rested = asyncio.Event()
    worker.rest(rested.set)
    await rested.wait()


def _a_partition_of(directories: Directories) -> str | None:
    for directory in directories.all:
        for name in directory.disk.names():
            found = parse_folder(name)
            if found is not None and found.topic != METADATA_TOPIC and found.fate is Fate.CURRENT:
                return directory.disk.full_path(name)
    return None


def _cluster_of(disks: Sequence[Disk]) -> str | None:
    """The cluster that the folders belong to; None when all are new."""
    for disk in disks:
        found = MetaProperties.read(disk)
        if found is not None:
            return found.cluster_id
    return None
