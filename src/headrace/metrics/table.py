"""Every metric once: its name, what it is, its labels, and the MBean that tells the same of Kafka.

What is scraped, the page in the docs, and the check of the dashboard and the alerts all come from this table.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from headrace.plain import plain_frozen


class Kind(Enum):
    """As both formats name it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@plain_frozen
class Metric:
    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    kafka: str = ""
    """Kafka's MBean, with the attribute after a colon where it is not the usual one; empty where it has none."""

    @property
    def series(self) -> tuple[str, ...]:
        """The names that its samples have."""
        if self.kind is Kind.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


def _counter(name: str, text: str, *labels: str, kafka: str = "") -> Metric:
    return Metric(name, Kind.COUNTER, text, labels, kafka)


def _gauge(name: str, text: str, *labels: str, kafka: str = "") -> Metric:
    return Metric(name, Kind.GAUGE, text, labels, kafka)


def _histogram(name: str, text: str, *labels: str, kafka: str = "") -> Metric:
    return Metric(name, Kind.HISTOGRAM, text, labels, kafka)


_TOPIC: Final = "kafka.server:type=BrokerTopicMetrics,topic=…,name="
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_REQUEST: Final = "kafka.network:type=RequestMetrics,request=…,name="
_LOG: Final = "kafka.log:type=Log,topic=…,partition=…,name="
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_RAFT: Final = "kafka.server:type=raft-metrics: "
_CLEANER: Final = "kafka.log:type=LogCleanerManager,name="
_SOCKETS: Final = "kafka.server:type=socket-server-metrics,listener=…: "

# --- topics -----------------------------------------------------------------------------------------------------------

TOPIC_BYTES_IN: Final = _counter(
    "headrace_topic_bytes_in_total",
    "Bytes of record batches that were appended, as they came: compressed if they were.",
    "topic",
    kafka=f"{_TOPIC}BytesInPerSec",
)
TOPIC_MESSAGES_IN: Final = _counter(
    "headrace_topic_messages_in_total", "Records that were appended.", "topic", kafka=f"{_TOPIC}MessagesInPerSec"
)
TOPIC_BYTES_OUT: Final = _counter(
    "headrace_topic_bytes_out_total",
    "Bytes of record batches that consumers fetched.",
    "topic",
    kafka=f"{_TOPIC}BytesOutPerSec",
)
TOPIC_MESSAGES_OUT: Final = _counter(
    "headrace_topic_messages_out_total",
    "Offsets that consumers were sent, to within an index interval or a batch for each fetch that has a limit. What "
    "compaction took out counts.",
    "topic",
)
TOPIC_REPLICATED_BYTES_OUT: Final = _counter(
    "headrace_topic_replicated_bytes_out_total",
    "Bytes of record batches that followers fetched.",
    "topic",
    kafka="kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
)
TOPIC_PRODUCE_ERRORS: Final = _counter(
    "headrace_topic_produce_errors_total",
    "Batches that were refused.",
    "topic",
    kafka=f"{_TOPIC}FailedProduceRequestsPerSec",
)
TOPIC_FETCH_ERRORS: Final = _counter(
    "headrace_topic_fetch_errors_total",
    "Partitions of fetches that were answered with an error.",
    "topic",
    kafka=f"{_TOPIC}FailedFetchRequestsPerSec",
)
TOPIC_PARTITIONS: Final = _gauge("headrace_topic_partitions", "Partitions that this node hosts.", "topic")
TOPIC_SIZE: Final = _gauge(
    "headrace_topic_size_bytes", "What the logs of a topic take on this node.", "topic", kafka=f"{_LOG}Size, summed"
)
TOPIC_SEGMENTS: Final = _gauge(
    "headrace_topic_segments", "Segments of the logs of a topic.", "topic", kafka=f"{_LOG}NumLogSegments, summed"
)
TOPIC_START_OFFSETS: Final = _gauge(
    "headrace_topic_start_offsets",
    "The sum of the first offsets of its partitions; /metrics/partitions has each.",
    "topic",
    kafka=f"{_LOG}LogStartOffset, summed",
)
TOPIC_END_OFFSETS: Final = _gauge(
    "headrace_topic_end_offsets",
    "The sum of the end offsets of its partitions. Without those of the start it is how many records there are.",
    "topic",
    kafka=f"{_LOG}LogEndOffset, summed",
)

# --- partitions, at an address of their own ---------------------------------------------------------------------------

PARTITION_START_OFFSET: Final = _gauge(
    "headrace_partition_start_offset", "The first offset.", "topic", "partition", kafka=f"{_LOG}LogStartOffset"
)
PARTITION_END_OFFSET: Final = _gauge(
    "headrace_partition_end_offset", "The offset of the next record.", "topic", "partition", kafka=f"{_LOG}LogEndOffset"
)
PARTITION_HIGH_WATERMARK: Final = _gauge(
    "headrace_partition_high_watermark", "Consumers see what is before it.", "topic", "partition"
)
PARTITION_STABLE_OFFSET: Final = _gauge(
    "headrace_partition_last_stable_offset",
    "Consumers that read committed records see what is before it.",
    "topic",
    "partition",
    kafka="kafka.cluster:type=Partition,topic=…,partition=…,name=LastStableOffsetLag, as a difference",
)
PARTITION_SIZE: Final = _gauge(
    "headrace_partition_size_bytes", "What the log takes.", "topic", "partition", kafka=f"{_LOG}Size"
)
PARTITION_IS_LEADER: Final = _gauge(
    "headrace_partition_is_leader", "1 where this node leads the partition.", "topic", "partition"
)
PARTITION_IN_SYNC: Final = _gauge(
    "headrace_partition_in_sync_replicas",
    "Replicas in sync, as the leader knows them.",
    "topic",
    "partition",
    kafka="kafka.cluster:type=Partition,topic=…,partition=…,name=InSyncReplicasCount",
)

# --- replicas ---------------------------------------------------------------------------------------------------------

PARTITIONS: Final = _gauge(
    "headrace_partitions", "Partitions that this node hosts.", kafka=f"{_REPLICAS}PartitionCount"
)
LEADERS: Final = _gauge("headrace_leader_partitions", "Those that it leads.", kafka=f"{_REPLICAS}LeaderCount")
UNDER_REPLICATED: Final = _gauge(
    "headrace_under_replicated_partitions",
    "Those that it leads and that have fewer replicas in sync than they have replicas.",
    kafka=f"{_REPLICAS}UnderReplicatedPartitions",
)
UNDER_MIN_ISR: Final = _gauge(
    "headrace_under_min_isr_partitions",
    "Those that it leads and that have fewer replicas in sync than min.insync.replicas: acks=all is refused.",
    kafka=f"{_REPLICAS}UnderMinIsrPartitionCount",
)
OFFLINE_PARTITIONS: Final = _gauge(
    "headrace_offline_partitions",
    "Partitions of this node that can't be used: their directory failed, or their log can't be opened or made.",
    kafka=f"{_REPLICAS}OfflineReplicaCount",
)
PRODUCER_IDS: Final = _gauge(
    "headrace_producer_ids",
    "Idempotent producers that the logs remember, each counted once in every partition that it wrote to.",
    kafka=f"{_REPLICAS}ProducerIdCount",
)

# --- storage ----------------------------------------------------------------------------------------------------------

OFFLINE_DIRECTORIES: Final = _gauge(
    "headrace_offline_directories",
    "Folders of log.dirs that can't be used.",
    kafka="kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
DIRECTORY_ONLINE: Final = _gauge(
    "headrace_directory_online",
    "1 while a folder of log.dirs is in use, 0 when it failed.",
    "directory",
    kafka="kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=…, the other way around",
)
DIRECTORY_SIZE: Final = _gauge(
    "headrace_directory_size_bytes", "What the logs in a folder of log.dirs take.", "directory"
)
DISK_FREE: Final = _gauge("headrace_disk_free_bytes", "What is free on the file system of a folder.", "directory")
DISK_TOTAL: Final = _gauge("headrace_disk_total_bytes", "The size of the file system of a folder.", "directory")
FLUSH_SECONDS: Final = _histogram(
    "headrace_flush_seconds",
    "How long a group commit took: one fsync of all that waited for it.",
    "directory",
    kafka="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
FLUSHED_FILES: Final = _counter(
    "headrace_flushed_files_total", "Files and folders that group commits brought to the disk.", "directory"
)
CLEANINGS: Final = _counter("headrace_cleaner_cleanings_total", "Compactions that were finished.")
CLEANER_RUNNING: Final = _gauge("headrace_cleaner_running", "Logs that are being compacted.")
CLEANER_SET_ASIDE: Final = _gauge(
    "headrace_cleaner_set_aside_partitions",
    "Logs that could not be compacted when it was last tried.",
    kafka=f"{_CLEANER}uncleanable-partitions-count",
)
CLEANER_SET_ASIDE_BYTES: Final = _gauge(
    "headrace_cleaner_set_aside_bytes", "What lies dirty in those.", kafka=f"{_CLEANER}uncleanable-bytes"
)
CLEANER_DIRTY_RATIO: Final = _gauge(
    "headrace_cleaner_dirty_ratio_max",
    "Of the dirtiest log, the part that was not compacted, from 0 to 1.",
    kafka=f"{_CLEANER}max-dirty-percent",
)

# --- requests ---------------------------------------------------------------------------------------------------------

REQUESTS: Final = _counter(
    "headrace_requests_total", "Requests that were served.", "api", kafka=f"{_REQUEST}RequestsPerSec"
)
REQUEST_ERRORS: Final = _counter(
    "headrace_request_errors_total",
    "Errors in replies, by their name; a reply with three failed partitions counts as three.",
    "api",
    "error",
    kafka=f"{_REQUEST}ErrorsPerSec,error=…",
)
REQUEST_SECONDS: Final = _histogram(
    "headrace_request_seconds",
    "From when the request was read to when its reply is handed to the socket.",
    "api",
    kafka=f"{_REQUEST}TotalTimeMs",
)
REQUEST_QUEUE_SECONDS: Final = _histogram(
    "headrace_request_queue_seconds",
    "The part of it before the handler begins, while requests that came with it are served.",
    "api",
    kafka=f"{_REQUEST}RequestQueueTimeMs",
)
REQUEST_LOCAL_SECONDS: Final = _histogram(
    "headrace_request_local_seconds", "The part of it in the handler.", "api", kafka=f"{_REQUEST}LocalTimeMs"
)
REQUEST_REMOTE_WAIT_SECONDS: Final = _histogram(
    "headrace_request_remote_wait_seconds",
    "The part of it in which it waits: for a disk, replicas, records, the controller.",
    "api",
    kafka=f"{_REQUEST}RemoteTimeMs",
)
REQUEST_SEND_SECONDS: Final = _histogram(
    "headrace_request_send_seconds",
    "The part of it in which the reply waits for those of earlier requests of its connection.",
    "api",
    kafka=f"{_REQUEST}ResponseQueueTimeMs and ResponseSendTimeMs",
)
WAITING_FETCHES: Final = _gauge(
    "headrace_waiting_fetches",
    "Fetches that wait for records.",
    kafka="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Fetch",
)
WAITING_PRODUCES: Final = _gauge(
    "headrace_waiting_produces",
    "Produce requests that wait for the disk or for replicas.",
    kafka="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Produce",
)
WAITING_REQUESTS: Final = _gauge(
    "headrace_waiting_requests",
    "Requests, of any API, whose reply has not been sent.",
    "listener",
    kafka="kafka.network:type=RequestChannel,name=RequestQueueSize and ResponseQueueSize",
)

# --- connections ------------------------------------------------------------------------------------------------------

CONNECTIONS: Final = _gauge(
    "headrace_connections", "Connections that are open.", "listener", kafka=f"{_SOCKETS}connection-count"
)
CONNECTIONS_ACCEPTED: Final = _counter(
    "headrace_connections_accepted_total",
    "Connections that were let in.",
    "listener",
    kafka=f"{_SOCKETS}connection-creation-total",
)
CONNECTIONS_REFUSED: Final = _counter(
    "headrace_connections_refused_total", "Connections beyond max.connections or max.connections.per.ip.", "listener"
)
CONNECTIONS_CLOSED: Final = _counter(
    "headrace_connections_closed_total",
    "Connections that the node closed, by the reason: idle, slow (it did not read or finish a request), "
    "bad_frame (what came is no request).",
    "listener",
    "reason",
    kafka=f"{_SOCKETS}connection-close-total, all reasons",
)
UNSENT_BYTES: Final = _gauge(
    "headrace_unsent_bytes", "Replies that clients have not read, in the buffers of their connections.", "listener"
)
REQUEST_BYTES_HELD: Final = _gauge(
    "headrace_request_bytes_held",
    "Memory for requests that have not arrived whole; queued.max.request.bytes is its limit.",
    kafka="kafka.server:type=socket-server-metrics: MemoryPoolUsed",
)
REPLY_BYTES_HELD: Final = _gauge(
    "headrace_reply_bytes_held", "Memory of fetched records that are not sent; fetch.replies.max.bytes is its limit."
)

# --- metadata ---------------------------------------------------------------------------------------------------------

METADATA_OFFSET: Final = _gauge(
    "headrace_metadata_offset",
    "The last record of the metadata log that is in this node's image.",
    kafka="kafka.server:type=broker-metadata-metrics: last-applied-record-offset",
)
METADATA_COMMIT_SECONDS: Final = _histogram(
    "headrace_metadata_commit_seconds",
    "From when the controller wrote a change down to when it was committed and in the image.",
    kafka=f"{_RAFT}commit-latency-avg",
)
QUORUM_EPOCH: Final = _gauge("headrace_quorum_epoch", "The epoch of the quorum.", kafka=f"{_RAFT}current-epoch")
QUORUM_LEADER: Final = _gauge(
    "headrace_quorum_leader_id", "Who leads the quorum; -1 when nobody does.", kafka=f"{_RAFT}current-leader"
)
QUORUM_VOTERS: Final = _gauge("headrace_quorum_voters", "Voters of the quorum.", kafka=f"{_RAFT}number-of-voters")
QUORUM_HIGH_WATERMARK: Final = _gauge(
    "headrace_quorum_high_watermark", "What of the metadata log is committed.", kafka=f"{_RAFT}high-watermark"
)
QUORUM_END_OFFSET: Final = _gauge(
    "headrace_quorum_end_offset", "The end of this node's metadata log.", kafka=f"{_RAFT}log-end-offset"
)
ACTIVE_CONTROLLER: Final = _gauge(
    "headrace_active_controller", "1 on the node that decides.", kafka=f"{_CONTROLLER}ActiveControllerCount"
)
BROKERS: Final = _gauge(
    "headrace_brokers",
    "Brokers of the cluster, by state: active, fenced.",
    "state",
    kafka=f"{_CONTROLLER}ActiveBrokerCount and FencedBrokerCount",
)
CLUSTER_TOPICS: Final = _gauge(
    "headrace_cluster_topics", "Topics of the cluster.", kafka=f"{_CONTROLLER}GlobalTopicCount"
)
CLUSTER_PARTITIONS: Final = _gauge(
    "headrace_cluster_partitions", "Partitions of the cluster.", kafka=f"{_CONTROLLER}GlobalPartitionCount"
)
LEADERLESS: Final = _gauge(
    "headrace_leaderless_partitions",
    "Partitions of the cluster that nobody leads.",
    kafka=f"{_CONTROLLER}OfflinePartitionsCount",
)
NOT_PREFERRED: Final = _gauge(
    "headrace_not_preferred_leader_partitions",
    "Partitions of the cluster that another than their first replica leads.",
    kafka=f"{_CONTROLLER}PreferredReplicaImbalanceCount",
)

# --- the process ------------------------------------------------------------------------------------------------------

BUILD_INFO: Final = _gauge(
    "headrace_build_info",
    "What runs here; always 1.",
    "version",
    "python",
    "node_id",
    "cluster_id",
    kafka="kafka.server:type=app-info",
)
READY: Final = _gauge(
    "headrace_ready",
    "1 while clients are served, as /readyz tells.",
    kafka="kafka.server:type=KafkaServer,name=BrokerState",
)
LOOP_LAG: Final = _histogram(
    "headrace_loop_lag_seconds",
    "How late the event loop comes to what is due, looked at four times a second. It holds up everything else.",
    kafka="kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent, in another way",
)
GC_COLLECTIONS: Final = _counter(
    "headrace_gc_collections_total",
    "Runs of Python's garbage collector.",
    "generation",
    kafka="java.lang:type=GarbageCollector,name=…: CollectionCount",
)
GC_SECONDS: Final = _counter(
    "headrace_gc_seconds_total",
    "What they took, while nothing else ran.",
    kafka="java.lang:type=GarbageCollector,name=…: CollectionTime",
)
CPU_SECONDS: Final = _counter(
    "process_cpu_seconds_total",
    "Processor time of the process, of users and of the system.",
    kafka="java.lang:type=OperatingSystem: ProcessCpuTime",
)
RESIDENT_BYTES: Final = _gauge("process_resident_memory_bytes", "Memory that the process has in RAM.")
VIRTUAL_BYTES: Final = _gauge("process_virtual_memory_bytes", "Memory that the process has mapped.")
OPEN_FILES: Final = _gauge(
    "process_open_fds",
    "Files and connections that the process has open.",
    kafka="java.lang:type=OperatingSystem: OpenFileDescriptorCount",
)
OPEN_FILES_MAX: Final = _gauge(
    "process_max_fds", "The most that it may have.", kafka="java.lang:type=OperatingSystem: MaxFileDescriptorCount"
)
START_SECONDS: Final = _gauge(
    "process_start_time_seconds", "When it started, in seconds since 1970.", kafka="java.lang:type=Runtime: StartTime"
)

# --- clients' telemetry -----------------------------------------------------------------------------------------------

TELEMETRY_CLIENTS: Final = _gauge(
    "headrace_telemetry_clients",
    "Clients that asked what to push, or pushed, and were not forgotten.",
    kafka="kafka.server:type=ClientMetrics: ClientMetricsInstanceCount",
)
TELEMETRY_PUSHES: Final = _counter(
    "headrace_telemetry_pushes_total",
    "Pushes of clients that were taken.",
    kafka="kafka.server:type=ClientMetrics: ClientMetricsPluginExportCount",
)
TELEMETRY_SERIES: Final = _gauge("headrace_telemetry_series", "Series of clients' metrics that are told here.")
TELEMETRY_DROPPED: Final = _counter(
    "headrace_telemetry_dropped_total",
    "Data points that were not taken, by the reason: limit, type (another client has the name with another type), "
    "unsupported (a kind of metric that there is no place for).",
    "reason",
)

SECTIONS: Final[tuple[tuple[str, tuple[Metric, ...]], ...]] = (
    (
        "Topics",
        (
            TOPIC_BYTES_IN,
            TOPIC_MESSAGES_IN,
            TOPIC_BYTES_OUT,
            TOPIC_MESSAGES_OUT,
            TOPIC_REPLICATED_BYTES_OUT,
            TOPIC_PRODUCE_ERRORS,
            TOPIC_FETCH_ERRORS,
            TOPIC_PARTITIONS,
            TOPIC_SIZE,
            TOPIC_SEGMENTS,
            TOPIC_START_OFFSETS,
            TOPIC_END_OFFSETS,
        ),
    ),
    (
        "Requests",
        (
            REQUESTS,
            REQUEST_ERRORS,
            REQUEST_SECONDS,
            REQUEST_QUEUE_SECONDS,
            REQUEST_LOCAL_SECONDS,
            REQUEST_REMOTE_WAIT_SECONDS,
            REQUEST_SEND_SECONDS,
            WAITING_FETCHES,
            WAITING_PRODUCES,
            WAITING_REQUESTS,
        ),
    ),
    (
        "Connections",
        (
            CONNECTIONS,
            CONNECTIONS_ACCEPTED,
            CONNECTIONS_REFUSED,
            CONNECTIONS_CLOSED,
            UNSENT_BYTES,
            REQUEST_BYTES_HELD,
            REPLY_BYTES_HELD,
        ),
    ),
    (
        "Replicas",
        (PARTITIONS, LEADERS, UNDER_REPLICATED, UNDER_MIN_ISR, OFFLINE_PARTITIONS, PRODUCER_IDS),
    ),
    (
        "Storage",
        (
            OFFLINE_DIRECTORIES,
            DIRECTORY_ONLINE,
            DIRECTORY_SIZE,
            DISK_FREE,
            DISK_TOTAL,
            FLUSH_SECONDS,
            FLUSHED_FILES,
            CLEANINGS,
            CLEANER_RUNNING,
            CLEANER_SET_ASIDE,
            CLEANER_SET_ASIDE_BYTES,
            CLEANER_DIRTY_RATIO,
        ),
    ),
    (
        "Metadata and the quorum",
        (
            METADATA_OFFSET,
            METADATA_COMMIT_SECONDS,
            QUORUM_EPOCH,
            QUORUM_LEADER,
            QUORUM_VOTERS,
            QUORUM_HIGH_WATERMARK,
            QUORUM_END_OFFSET,
            ACTIVE_CONTROLLER,
            BROKERS,
            CLUSTER_TOPICS,
            CLUSTER_PARTITIONS,
            LEADERLESS,
            NOT_PREFERRED,
        ),
    ),
    (
        "The process",
        (
            BUILD_INFO,
            READY,
            LOOP_LAG,
            GC_COLLECTIONS,
            GC_SECONDS,
            CPU_SECONDS,
            RESIDENT_BYTES,
            VIRTUAL_BYTES,
            OPEN_FILES,
            OPEN_FILES_MAX,
            START_SECONDS,
        ),
    ),
    ("Clients' telemetry", (TELEMETRY_CLIENTS, TELEMETRY_PUSHES, TELEMETRY_SERIES, TELEMETRY_DROPPED)),
    (
        "Partitions",
        (
            PARTITION_START_OFFSET,
            PARTITION_END_OFFSET,
            PARTITION_HIGH_WATERMARK,
            PARTITION_STABLE_OFFSET,
            PARTITION_SIZE,
            PARTITION_IS_LEADER,
            PARTITION_IN_SYNC,
        ),
    ),
)
"""In the order of the page."""

METRICS: Final = {metric.name: metric for _, metrics in SECTIONS for metric in metrics}
SERIES: Final = {name: metric for metric in METRICS.values() for name in metric.series}
"""By the name of a sample."""
