"""What a scrape tells of a node: collected when it is asked for, from where it is counted.

The text comes in parts. Each is made in a bounded time, so that the loop serves others in between: ten thousand
partitions are looked at in steps, and told by topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from headrace import __version__
from headrace.broker.watched import Watched
from headrace.errors import Error, HeadraceError
from headrace.metrics import table as t
from headrace.metrics.exposition import Form, family, header_of, histogram, labels, sample
from headrace.metrics.table import Metric
from headrace.metrics.traffic import TopicTraffic
from headrace.replica.partition import Partition

PARTITIONS_A_STEP: Final = 200
CONNECTIONS_A_STEP: Final = 1000
SAMPLES_A_STEP: Final = 500

Item = TypeVar("Item")


class _TopicFigures:
    """Of the partitions that this node hosts."""

    __slots__ = ("end_offsets", "labels", "partitions", "segments", "size_bytes", "start_offsets", "traffic")

    def __init__(self, topic: str, traffic: TopicTraffic) -> None:
        self.labels = labels(("topic",), (topic,))
        self.traffic = traffic
        self.partitions = self.size_bytes = self.segments = self.start_offsets = self.end_offsets = 0


_TOPIC_METRICS: Final[tuple[tuple[Metric, Callable[[_TopicFigures], int]], ...]] = (
    (t.TOPIC_BYTES_IN, lambda found: found.traffic.bytes_in),
    (t.TOPIC_MESSAGES_IN, lambda found: found.traffic.messages_in),
    (t.TOPIC_BYTES_OUT, lambda found: found.traffic.bytes_out),
    (t.TOPIC_MESSAGES_OUT, lambda found: found.traffic.messages_out),
    (t.TOPIC_REPLICATED_BYTES_OUT, lambda found: found.traffic.replicated_bytes_out),
    (t.TOPIC_PRODUCE_ERRORS, lambda found: found.traffic.produce_errors),
    (t.TOPIC_FETCH_ERRORS, lambda found: found.traffic.fetch_errors),
    (t.TOPIC_PARTITIONS, lambda found: found.partitions),
    (t.TOPIC_SIZE, lambda found: found.size_bytes),
    (t.TOPIC_SEGMENTS, lambda found: found.segments),
    (t.TOPIC_START_OFFSETS, lambda found: found.start_offsets),
    (t.TOPIC_END_OFFSETS, lambda found: found.end_offsets),
)
_PARTITION_METRICS: Final[tuple[tuple[Metric, Callable[[Partition], int]], ...]] = (
    (t.PARTITION_START_OFFSET, lambda found: found.log_start_offset),
    (t.PARTITION_END_OFFSET, lambda found: found.log_end_offset),
    (t.PARTITION_HIGH_WATERMARK, lambda found: found.high_watermark),
    (t.PARTITION_STABLE_OFFSET, lambda found: found.last_stable_offset),
    (t.PARTITION_SIZE, lambda found: found.log.size_bytes),
    (t.PARTITION_IS_LEADER, lambda found: int(found.is_leader)),
    (t.PARTITION_IN_SYNC, lambda found: len(found.isr)),
)
_SLICES: Final = (
    t.REQUEST_SECONDS,
    t.REQUEST_QUEUE_SECONDS,
    t.REQUEST_LOCAL_SECONDS,
    t.REQUEST_REMOTE_WAIT_SECONDS,
    t.REQUEST_SEND_SECONDS,
)


class NodeMetrics:
    __slots__ = ("_watched",)

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def pages(self, form: Form) -> Iterator[str]:
        """The whole text of /metrics."""
        yield self._process(form)
        yield from self._requests(form)
        yield from self._connections(form)
        yield self._metadata(form)
        yield from self._cluster(form)
        yield from self._partitions(form)
        yield self._storage(form)
        yield from self._telemetry(form)
        yield form.end

    def partition_pages(self, form: Form) -> Iterator[str]:
        """The whole text of /metrics/partitions."""
        found: list[tuple[str, Partition]] = []
        for some in _in_steps(list(self._watched.replicas.hosted()), PARTITIONS_A_STEP):
            found += [(labels(("topic", "partition"), (one.topic, one.index)), one) for one in some]
            yield ""
        for metric, value_of in _PARTITION_METRICS:
            yield from _long_family(form, metric, found, value_of)
        yield form.end

    # --- the parts ----------------------------------------------------------------------------------------------------

    def _process(self, form: Form) -> str:
        watched = self._watched
        figures = watched.process()
        python = "" if figures is None else figures.python
        told = [
            family(
                form,
                t.BUILD_INFO,
                {labels(t.BUILD_INFO.labels, (__version__, python, watched.node_id, watched.cluster_id)): 1},
            ),
            _single(form, t.READY, int(watched.is_ready())),
            header_of(form, t.LOOP_LAG) + histogram(t.LOOP_LAG.name, "", watched.loop_lag),
        ]
        if figures is not None:
            generations = {labels(("generation",), (g,)): count for g, count in enumerate(figures.gc_collections)}
            told += [
                family(form, t.GC_COLLECTIONS, generations),
                _single(form, t.GC_SECONDS, figures.gc_seconds),
                _single(form, t.CPU_SECONDS, figures.cpu_seconds),
                _single(form, t.RESIDENT_BYTES, figures.resident_bytes),
                _single(form, t.VIRTUAL_BYTES, figures.virtual_bytes),
                _single(form, t.OPEN_FILES, figures.open_files),
                _single(form, t.OPEN_FILES_MAX, figures.open_files_max),
                _single(form, t.START_SECONDS, figures.start_seconds),
            ]
        return "".join(told)

    def _requests(self, form: Form) -> Iterator[str]:
        watched = self._watched
        # An API that nobody asked for has nothing to tell; ones that are under way have not been answered.
        asked = [
            route.figures for route in watched.router.routes if route.figures.local.count or route.figures.answered
        ]
        named = [(labels(("api",), (figures.api,)), figures) for figures in asked]
        errors = {
            labels(t.REQUEST_ERRORS.labels, (figures.api, Error.of(code).name)): count
            for figures in asked
            for code, count in figures.errors.items()
        }
        yield family(form, t.REQUESTS, {key: figures.answered for key, figures in named}) + family(
            form, t.REQUEST_ERRORS, errors
        )
        slices = [(key, figures.slices()) for key, figures in named]
        for number, metric in enumerate(_SLICES):
            if slices:
                yield header_of(form, metric) + "".join(
                    histogram(metric.name, key, found[number]) for key, found in slices
                )
        yield (
            _single(form, t.WAITING_FETCHES, watched.fetch.waiting)
            + _single(form, t.WAITING_PRODUCES, watched.produce.waiting)
            + _single(form, t.REPLY_BYTES_HELD, watched.memory.held_bytes)
            + _single(form, t.REQUEST_BYTES_HELD, watched.listeners.request_bytes_held)
        )

    def _connections(self, form: Form) -> Iterator[str]:
        closed, rest = {}, []
        gauges: dict[Metric, dict[str, float]] = {
            metric: {}
            for metric in (
                t.CONNECTIONS,
                t.CONNECTIONS_ACCEPTED,
                t.CONNECTIONS_REFUSED,
                t.WAITING_REQUESTS,
                t.UNSENT_BYTES,
            )
        }
        for listener in self._watched.listeners.all:
            key, counters = labels(("listener",), (listener.name,)), listener.counters
            waiting = unsent_bytes = 0
            for some in _in_steps(list(listener.connections.values()), CONNECTIONS_A_STEP):
                for connection in some:
                    waiting += connection.waiting_replies
                    unsent_bytes += connection.unsent_bytes
                yield ""
            gauges[t.CONNECTIONS][key] = len(listener.connections)
            gauges[t.CONNECTIONS_ACCEPTED][key] = counters.accepted
            gauges[t.CONNECTIONS_REFUSED][key] = counters.refused
            gauges[t.WAITING_REQUESTS][key] = waiting
            gauges[t.UNSENT_BYTES][key] = unsent_bytes
            for reason, count in (
                ("idle", counters.idle_closed),
                ("slow", counters.slow_closed),
                ("bad_frame", counters.frames_refused),
            ):
                closed[labels(t.CONNECTIONS_CLOSED.labels, (listener.name, reason))] = count
        rest = [family(form, metric, samples) for metric, samples in gauges.items()]
        yield "".join(rest) + family(form, t.CONNECTIONS_CLOSED, closed)

    def _metadata(self, form: Form) -> str:
        service = self._watched.metadata
        driver, image = service.driver, service.loader.image
        active = sum(not broker.is_fenced for broker in image.brokers.values())
        states = {'state="active"': active, 'state="fenced"': len(image.brokers) - active}
        return "".join(
            (
                _single(form, t.METADATA_OFFSET, image.offset),
                header_of(form, t.METADATA_COMMIT_SECONDS),
                histogram(t.METADATA_COMMIT_SECONDS.name, "", service.commit_latency),
                _single(form, t.QUORUM_EPOCH, driver.leader.epoch),
                _single(form, t.QUORUM_LEADER, driver.leader.leader_id),
                _single(form, t.QUORUM_VOTERS, len(driver.node.voters)),
                _single(form, t.QUORUM_HIGH_WATERMARK, driver.high_watermark),
                _single(form, t.QUORUM_END_OFFSET, driver.node.history.end_offset),
                _single(form, t.ACTIVE_CONTROLLER, int(service.is_active)),
                family(form, t.BROKERS, states),
                _single(form, t.CLUSTER_TOPICS, len(image.topics)),
            )
        )

    def _cluster(self, form: Form) -> Iterator[str]:
        """Of the image that there is now: it does not change while this goes over it."""
        count = leaderless = not_preferred = looked_at = 0
        for topic in self._watched.metadata.loader.image.topics.values():
            for state in topic.partitions.values():
                count += 1
                if not state.has_leader:
                    leaderless += 1
                elif state.leader != state.replicas[0]:
                    not_preferred += 1
            if count - looked_at >= 5 * PARTITIONS_A_STEP:
                looked_at = count
                yield ""
        yield (
            _single(form, t.CLUSTER_PARTITIONS, count)
            + _single(form, t.LEADERLESS, leaderless)
            + _single(form, t.NOT_PREFERRED, not_preferred)
        )

    def _partitions(self, form: Form) -> Iterator[str]:
        """What is added up over partitions: of the node, of its directories, and of each topic."""
        watched = self._watched
        hosted = list(watched.replicas.hosted())
        leaders = under_replicated = under_min = producers = 0
        offline = watched.replicas.unmade_count
        topics: dict[bytes, _TopicFigures] = {}
        directories: dict[str, int] = {directory.root: 0 for directory in watched.directories.all}
        for some in _in_steps(hosted, PARTITIONS_A_STEP):
            for partition in some:
                log = partition.log
                partition.count_messages()
                if partition.is_leader:
                    leaders += 1
                    under_replicated += len(partition.isr) < len(partition.replicas)
                    under_min += not partition.in_sync.is_enough
                offline += partition.offline is not None
                producers += len(log.producers)
                size_bytes = log.size_bytes
                root = log.place.disk.root
                directories[root] = directories.get(root, 0) + size_bytes
                topic = topics.get(partition.topic_id)
                if topic is None:
                    topic = topics[partition.topic_id] = _TopicFigures(partition.topic, partition.traffic)
                topic.partitions += 1
                topic.size_bytes += size_bytes
                topic.segments += len(log.segments)
                topic.start_offsets += log.log_start_offset
                topic.end_offsets += log.log_end_offset
            yield ""
        yield "".join(
            (
                _single(form, t.PARTITIONS, len(hosted)),
                _single(form, t.LEADERS, leaders),
                _single(form, t.UNDER_REPLICATED, under_replicated),
                _single(form, t.UNDER_MIN_ISR, under_min),
                _single(form, t.OFFLINE_PARTITIONS, offline),
                _single(form, t.PRODUCER_IDS, producers),
                family(
                    form,
                    t.DIRECTORY_SIZE,
                    {labels(("directory",), (root,)): size_bytes for root, size_bytes in directories.items()},
                ),
            )
        )
        # A topic that was deleted and made again meanwhile has one name and two ids: the later one counts.
        found = [(topic.labels, topic) for topic in {topic.labels: topic for topic in topics.values()}.values()]
        for metric, value_of in _TOPIC_METRICS:
            yield from _long_family(form, metric, found, value_of)

    def _storage(self, form: Form) -> str:
        watched, online, free, total = self._watched, {}, {}, {}
        directories = watched.directories
        for root in directories.failed:
            online[labels(("directory",), (root,))] = 0
        for directory in directories.all:
            key = labels(("directory",), (directory.root,))
            online[key] = int(directory.offline is None)
            try:
                free[key], total[key] = directory.disk.free_bytes(), directory.disk.total_bytes()
            except HeadraceError:
                free.pop(key, None)
        flushers = [(labels(("directory",), (disk.root,)), found) for disk, found in watched.flushers.items()]
        told = [
            _single(form, t.OFFLINE_DIRECTORIES, sum(not found for found in online.values())),
            family(form, t.DIRECTORY_ONLINE, online),
            family(form, t.DISK_FREE, free),
            family(form, t.DISK_TOTAL, total),
            header_of(form, t.FLUSH_SECONDS),
            *(histogram(t.FLUSH_SECONDS.name, key, found.latency) for key, found in flushers),
            family(form, t.FLUSHED_FILES, {key: found.synced_files for key, found in flushers}),
        ]
        cleaner = watched.replicas.cleaner
        if cleaner is not None:
            told += [
                _single(form, t.CLEANINGS, cleaner.cleanings),
                _single(form, t.CLEANER_RUNNING, len(cleaner.running)),
                _single(form, t.CLEANER_SET_ASIDE, len(cleaner.set_aside)),
                _single(form, t.CLEANER_SET_ASIDE_BYTES, cleaner.uncleanable_bytes()),
                _single(form, t.CLEANER_DIRTY_RATIO, cleaner.max_dirty_ratio),
            ]
        return "".join(told)

    def _telemetry(self, form: Form) -> Iterator[str]:
        telemetry = self._watched.telemetry.expire()
        series = telemetry.series
        dropped = {labels(("reason",), (reason,)): count for reason, count in series.dropped.items()}
        yield (
            _single(form, t.TELEMETRY_CLIENTS, telemetry.clients)
            + _single(form, t.TELEMETRY_PUSHES, telemetry.pushes)
            + _single(form, t.TELEMETRY_SERIES, series.count)
            + family(form, t.TELEMETRY_DROPPED, dropped)
        )
        yield from series.pages(form)


def _single(form: Form, metric: Metric, value: float) -> str:
    return family(form, metric, {"": value})


def _long_family(
    form: Form, metric: Metric, found: list[tuple[str, Item]], value_of: Callable[[Item], int]
) -> Iterator[str]:
    if not found:
        return
    yield header_of(form, metric)
    for some in _in_steps(found, SAMPLES_A_STEP):
        yield "".join([sample(metric.name, key, value_of(item)) for key, item in some])


def _in_steps(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
