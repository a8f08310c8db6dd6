"""What can be set on a broker and nowhere else, by the part of the node that takes it."""

from __future__ import annotations

from posixpath import normpath

from headrace.config.group import Group, boolean, double, integer, long, words
from headrace.config.setting import INT64_MAX, Change
from headrace.config.topic import DAY_MS, KIB, MIB, MINUTE_MS
from headrace.errors import Error, Refused


class RequestConfig(Group):
    """How much one request may ask of the node, whoever sends it."""

    socket_request_max_bytes: int = integer(
        default=100 * MIB,
        least=1,
        doc="The largest request. A frame that says it is longer closes its connection before a byte of it is kept.",
    )
    socket_request_max_elements: int = integer(
        default=1_000_000,
        least=1,
        kafka="Kafka has no such limit: a small frame can make it allocate a large array.",
        doc="The most array elements and tagged fields that one request may hold, in all its arrays together.",
    )
    max_request_partition_size_limit: int = integer(
        default=2000,
        least=1,
        doc="The most partitions in one reply to DescribeTopicPartitions; the rest is on the next page.",
    )
    record_batch_max_decompressed_bytes: int = long(
        default=128 * MIB,
        least=1,
        kafka="Kafka has no such limit: a small batch can decompress to gigabytes.",
        doc="The most bytes that one compressed batch may decompress to, where the broker has to look inside it.",
    )


class StorageConfig(Group):
    """Where logs are, and how often they are looked after."""

    log_dirs: tuple[str, ...] = words(
        default=("headrace-data",),
        kafka="Kafka's default is /tmp/kafka-logs, which many machines empty when they start.",
        doc="The folders that hold the partitions. A new partition goes to the one with the fewest.",
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        default=MINUTE_MS,
        least=0,
        doc="How often the recovery points are written down: after an unclean stop, what lies behind them is verified.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        default=MINUTE_MS,
        least=0,
        doc="How often the start offsets of the logs are written down.",
    )
    log_retention_check_interval_ms: int = long(
        default=5 * MINUTE_MS,
        least=1,
        doc="How often logs are looked through for segments that are past retention.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        default=5_000,
        least=1,
        doc="How often the high watermarks are written down, and with them the recovery points and the start offsets.",
    )
    num_recovery_threads_per_data_dir: int = integer(
        default=2,
        least=1,
        change=Change.CLUSTER,
        why="The logs of a folder are recovered one after another, at the pace of most disks, and flushed together.",
        doc="The threads of each folder that recover logs at a start, and flush them at a stop.",
    )
    producer_id_expiration_ms: int = integer(
        default=DAY_MS,
        least=1,
        change=Change.CLUSTER,
        doc="How long a partition remembers an idempotent producer that writes nothing. After that, a late retry of "
        "it is not recognised as one.",
    )
    producer_id_expiration_check_interval_ms: int = integer(
        default=10 * MINUTE_MS,
        least=1,
        doc="How often partitions are looked through for producers that have expired.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        default=INT64_MAX,
        least=0,
        change=Change.CLUSTER,
        doc="The most that moves of partitions between folders copy, all together.",
    )

    def check(self) -> None:
        if not self.log_dirs:
            raise Refused(Error.INVALID_CONFIG, "log.dirs is empty; a node needs a folder, as in headrace-data.")
        seen: dict[str, str] = {}
        for folder in self.log_dirs:
            first = seen.setdefault(normpath(folder), folder)
            if first is not folder:
                raise Refused(
                    Error.INVALID_CONFIG, f"log.dirs names one folder twice, as {first} and as {folder}; leave out one."
                )


class CleanerConfig(Group):
    """The cleaner, which compacts logs."""

    log_cleaner_enable: bool = boolean(
        default=True,
        doc="Whether this broker compacts at all. Without it, compacted topics grow for ever.",
    )
    log_cleaner_threads: int = integer(
        default=1,
        least=0,
        change=Change.CLUSTER,
        doc="How many logs are compacted at once.",
    )
    log_cleaner_dedupe_buffer_size: int = long(
        default=128 * MIB,
        least=1,
        change=Change.CLUSTER,
        doc="The memory for the keys of a cleaning, over all cleaners. A log with more keys takes several passes.",
    )
    log_cleaner_io_buffer_size: int = integer(
        default=512 * KIB,
        least=0,
        change=Change.CLUSTER,
        doc="The memory for reading and writing while cleaning, over all cleaners.",
    )
    log_cleaner_io_buffer_load_factor: float = double(
        default=0.9,
        least=0.01,
        most=1,
        change=Change.CLUSTER,
        doc="How full the memory for keys may get. Higher cleans more in one pass and compares more keys.",
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        default=1.7976931348623157e308,
        least=1,
        change=Change.CLUSTER,
        doc="The most that cleaning reads and writes a second, on average.",
    )
    log_cleaner_backoff_ms: int = long(
        default=15_000,
        least=0,
        change=Change.CLUSTER,
        doc="How long the cleaner waits when there is nothing to clean.",
    )

    def check(self) -> None:
        each = self.log_cleaner_dedupe_buffer_size // max(1, self.log_cleaner_threads)
        if each < MIB:
            raise Refused(
                Error.INVALID_CONFIG,
                f"log.cleaner.dedupe.buffer.size must be at least 1 MiB for each cleaner, not {each} bytes; "
                "raise it, or lower log.cleaner.threads.",
            )
