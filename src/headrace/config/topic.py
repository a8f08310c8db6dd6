"""What can be set on a topic, and is a default on the broker: how its log is kept."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from headrace.config.group import Group, boolean, choice, double, integer, long, words
from headrace.config.setting import INT32_MAX, INT64_MAX, Scope
from headrace.errors import Error, Refused

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


THROTTLED_REPLICAS: Final = r"\*|\d+:\d+"
NOT_TIERED: Final = "It counts for topics with remote.storage.enable, which none can have yet."


class TimestampType(Enum):
    """Whose clock a record's timestamp is from."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(Enum):
    """How a topic's batches are stored."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class LogConfig(Group, scope=Scope.TOPIC):
    """How the log of one topic is kept."""

    cleanup_policy: tuple[str, ...] = words(
        default=("delete",),
        choices=("compact", "delete"),
        synonyms=("log.cleanup.policy",),
        doc="What happens to old records: `delete` drops whole segments that are past retention, `compact` keeps the "
        "last record of each key, both do both. Empty keeps everything.",
    )
    compression_type: CompressionType = choice(
        default=CompressionType.PRODUCER,
        synonyms=("compression.type",),
        doc="How batches are stored: `producer` keeps them as they were sent; any other value recompresses those that "
        "come differently, which costs CPU.",
    )
    compression_gzip_level: int = integer(
        default=-1,
        least=1,
        most=9,
        also=(-1,),
        synonyms=("compression.gzip.level",),
        doc="How hard gzip tries when the broker recompresses; -1 is gzip's own default.",
    )
    compression_lz4_level: int = integer(
        default=9,
        least=1,
        most=17,
        synonyms=("compression.lz4.level",),
        doc="How hard lz4 tries when the broker recompresses.",
    )
    compression_zstd_level: int = integer(
        default=3,
        least=-131072,
        most=22,
        synonyms=("compression.zstd.level",),
        doc="How hard zstd tries when the broker recompresses.",
    )
    delete_retention_ms: int = long(
        default=DAY_MS,
        least=0,
        synonyms=("log.cleaner.delete.retention.ms",),
        doc="How long a compacted topic keeps a tombstone, counted from the first cleaning that meets it. A reader "
        "that starts at the beginning must finish within it to see every deletion.",
    )
    file_delete_delay_ms: int = long(
        default=MINUTE_MS,
        least=0,
        synonyms=("log.segment.delete.delay.ms",),
        doc="How long a deleted segment's files stay on disk under another name, so that a reader in the middle can "
        "finish.",
    )
    flush_messages: int = long(
        default=INT64_MAX,
        least=1,
        synonyms=("log.flush.interval.messages",),
        doc="fsync after this many records. 1 means that every acknowledged record is on the disk of each in-sync "
        "replica before it is acknowledged.",
    )
    flush_ms: int = long(
        default=INT64_MAX,
        least=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="fsync at the latest this long after a record was appended.",
    )
    index_interval_bytes: int = integer(
        default=4096,
        least=0,
        synonyms=("log.index.interval.bytes",),
        doc="One entry in the offset index for about this many bytes of log. Smaller finds a position with less "
        "reading and makes the index larger.",
    )
    max_compaction_lag_ms: int = long(
        default=INT64_MAX,
        least=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        doc="A record of a compacted topic is cleaned at the latest this long after it was written, however little of "
        "the log is dirty.",
    )
    max_message_bytes: int = integer(
        default=MIB + 12,
        least=0,
        synonyms=("message.max.bytes",),
        doc="The largest record batch that is taken, as it comes over the wire (compressed, if it is).",
    )
    message_timestamp_after_max_ms: int = long(
        default=HOUR_MS,
        least=0,
        synonyms=("log.message.timestamp.after.max.ms",),
        doc="With CreateTime, a record whose timestamp is further ahead of the broker's clock than this is refused.",
    )
    message_timestamp_before_max_ms: int = long(
        default=INT64_MAX,
        least=0,
        synonyms=("log.message.timestamp.before.max.ms",),
        doc="With CreateTime, a record whose timestamp is further behind the broker's clock than this is refused.",
    )
    message_timestamp_type: TimestampType = choice(
        default=TimestampType.CREATE_TIME,
        synonyms=("log.message.timestamp.type",),
        doc="Whether a record keeps the producer's timestamp or gets the broker's at the append.",
    )
    min_cleanable_dirty_ratio: float = double(
        default=0.5,
        least=0,
        most=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
        doc="Compaction starts when this part of the log has not been cleaned yet. Higher wastes space and saves I/O.",
    )
    min_compaction_lag_ms: int = long(
        default=0,
        least=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        doc="A record stays as it is at least this long before compaction may drop it.",
    )
    min_insync_replicas: int = integer(
        default=1,
        least=1,
        synonyms=("min.insync.replicas",),
        doc="With acks=all, a write needs this many in-sync replicas; with fewer it is refused. More than a partition "
        "has replicas means all of them: on one node it refuses nothing.",
    )
    preallocate: bool = boolean(
        default=False,
        synonyms=("log.preallocate",),
        doc="Whether the whole of a segment is allocated on disk when it begins.",
    )
    retention_bytes: int = long(
        default=-1,
        synonyms=("log.retention.bytes",),
        doc="The oldest segments of a partition are deleted while the rest still has this size. Negative: no limit.",
    )
    retention_ms: int = long(
        default=7 * DAY_MS,
        least=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="A segment is deleted when its newest record is older than this. -1: never.",
    )
    segment_bytes: int = integer(
        default=GIB,
        least=MIB,
        most=INT32_MAX,
        synonyms=("log.segment.bytes",),
        doc="A segment is closed before it grows beyond this. Deletion and compaction work on closed segments only.",
    )
    segment_index_bytes: int = integer(
        default=10 * MIB,
        least=4,
        synonyms=("log.index.size.max.bytes",),
        doc="The largest offset index of a segment; a full one closes the segment.",
    )
    segment_jitter_ms: int = long(
        default=0,
        least=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="Up to this much, at random, is taken off segment.ms, so that partitions do not all close at once.",
    )
    segment_ms: int = long(
        default=7 * DAY_MS,
        least=1,
        synonyms=("log.roll.ms", "log.roll.hours"),
        doc="A segment is closed after this time even when it is small, so that old records can be dropped.",
    )
    unclean_leader_election_enable: bool = boolean(
        default=False,
        synonyms=("unclean.leader.election.enable",),
        why="A partition has one replica, and no other could lead in its place.",
        doc="Whether a replica that is not in sync may lead when no other can, which loses acknowledged records.",
    )

    follower_replication_throttled_replicas: tuple[str, ...] = words(
        default=(),
        pattern=THROTTLED_REPLICAS,
        why="Followers do not replicate yet, so there is nothing to hold back.",
        doc="The replicas whose fetches from their leader are held back, as partition:broker, or * for all.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = words(
        default=(),
        pattern=THROTTLED_REPLICAS,
        why="Followers do not replicate yet, so there is nothing to hold back.",
        doc="The replicas whose leader holds their fetches back, as partition:broker, or * for all.",
    )
    local_retention_bytes: int = long(
        default=-2,
        least=-2,
        synonyms=("log.local.retention.bytes",),
        why=NOT_TIERED,
        doc="How much of a partition stays on local disks when the rest is in the object store; -2 is retention.bytes.",
    )
    local_retention_ms: int = long(
        default=-2,
        least=-2,
        synonyms=("log.local.retention.ms",),
        why=NOT_TIERED,
        doc="How long records stay on local disks when older ones are in the object store; -2 is retention.ms.",
    )
    remote_log_copy_disable: bool = boolean(
        default=False,
        why=NOT_TIERED,
        doc="Whether nothing more is copied to the object store, while what is there is still read.",
    )
    remote_log_delete_on_disable: bool = boolean(
        default=False,
        why=NOT_TIERED,
        doc="Whether what is in the object store is deleted when remote.storage.enable is switched off.",
    )
    remote_storage_enable: bool = boolean(
        default=False,
        refuses=True,
        why="there is no tiered storage yet.",
        doc="Whether closed segments are copied to an object store.",
    )

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def preallocated_bytes(self) -> int:
        """Of a segment that begins."""
        return self.segment_bytes if self.preallocate else 0

    @classmethod
    def of_broker(cls, texts: Mapping[str, str], base: LogConfig | None = None) -> LogConfig:
        """What a topic that sets nothing has, under these texts of the broker's settings; the rest as in `base`.

        Of several names for one thing the first that is set wins: log.retention.ms, then minutes, then hours.
        """
        values: dict[str, Any] = {} if base is None else base.values()
        for field, setting in cls.fields.items():
            for twin in setting.broker_twins():
                if twin.name in texts:
                    value, scale = twin.parse(texts[twin.name]), setting.scale_of(twin.name)
                    values[field] = value if scale == 1 else max(-1, value * scale)
                    break
        made = cls(**values)
        made.check()
        return made

    def check(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise Refused(
                Error.INVALID_CONFIG,
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) must not be above max.compaction.lag.ms "
                f"({self.max_compaction_lag_ms}).",
            )
