"""What groups may do, and how long their offsets live."""

from __future__ import annotations

from enum import Enum

from headrace.config.group import Group, choice, integer, long, short, words
from headrace.config.setting import INT32_MAX
from headrace.config.topic import KIB, MIB
from headrace.errors import Error, Refused


class MigrationPolicy(Enum):
    """Which way a group with members may go from one protocol to the other (KIP-848)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"


class GroupConfig(Group):
    """The groups of both protocols."""

    group_min_session_timeout_ms: int = integer(
        default=6_000, doc="The least session time-out that a member of a classic group may ask for."
    )
    group_max_session_timeout_ms: int = integer(
        default=1_800_000, doc="The longest session time-out that a member of a classic group may ask for."
    )
    group_initial_rebalance_delay_ms: int = integer(
        default=3_000,
        doc="How long the first rebalance of an empty classic group waits for more members.",
    )
    group_max_size: int = integer(default=INT32_MAX, least=1, doc="The most members of a classic group.")
    group_coordinator_rebalance_protocols: tuple[str, ...] = words(
        default=("classic", "consumer"),
        choices=("classic", "consumer"),
        kafka="Kafka has share and streams groups too.",
        doc="The protocols that groups may use.",
    )
    group_coordinator_append_linger_ms: int = integer(
        default=-1,
        least=-1,
        why="Here what one round of the loop decides is written together, without a pause.",
        doc="How long the coordinator collects what it writes; -1 lets it choose.",
    )
    group_coordinator_threads: int = integer(
        default=4, least=1, why="Here a node is one loop.", doc="The threads of the coordinator."
    )
    group_consumer_session_timeout_ms: int = integer(
        default=45_000,
        least=1,
        doc="After how long without a heartbeat a member of the new protocol is taken for gone.",
    )
    group_consumer_min_session_timeout_ms: int = integer(
        default=45_000, least=1, doc="The least session time-out that a group may be given."
    )
    group_consumer_max_session_timeout_ms: int = integer(
        default=60_000, least=1, doc="The longest session time-out that a group may be given."
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        default=5_000, least=1, doc="How often members of the new protocol are told to send a heartbeat."
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        default=5_000, least=1, doc="The least heartbeat interval that a group may be given."
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        default=15_000, least=1, doc="The longest heartbeat interval that a group may be given."
    )
    group_consumer_max_size: int = integer(
        default=INT32_MAX, least=1, doc="The most members of a group of the new protocol."
    )
    group_consumer_assignors: tuple[str, ...] = words(
        default=("uniform", "range"),
        choices=("uniform", "range"),
        kafka="Kafka takes names of Java classes too.",
        doc="The assignors that members may ask for; the first is for those that do not ask.",
    )
    group_consumer_migration_policy: MigrationPolicy = choice(
        default=MigrationPolicy.BIDIRECTIONAL,
        doc="Which way a group with members may go from one protocol to the other. Empty ones always may.",
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        default=600_000,
        least=10_000,
        why="Regular expressions are looked at again when topics come or go, and not by time.",
        doc="How often the regular expressions of a group are looked at again.",
    )

    def check(self) -> None:
        if "classic" not in self.group_coordinator_rebalance_protocols:
            raise Refused(
                Error.INVALID_CONFIG,
                "group.coordinator.rebalance.protocols must have classic in it, which can't be switched off.",
            )
        if not self.group_consumer_assignors:
            raise Refused(Error.INVALID_CONFIG, "group.consumer.assignors must name one assignor at least.")
        for what, unit in (("session.timeout", "ms"), ("heartbeat.interval", "ms")):
            field = f"{what}.{unit}".replace(".", "_")
            least = getattr(self, f"group_consumer_min_{field}")
            most = getattr(self, f"group_consumer_max_{field}")
            value = getattr(self, f"group_consumer_{field}")
            if not least <= value <= most:
                raise Refused(
                    Error.INVALID_CONFIG,
                    f"group.consumer.{what}.{unit} is {value}, and must be from group.consumer.min.{what}.{unit} "
                    f"({least}) to group.consumer.max.{what}.{unit} ({most}).",
                )


class OffsetsConfig(Group):
    """Committed offsets, and the topic that they live in."""

    offset_metadata_max_bytes: int = integer(
        default=4 * KIB, least=0, doc="The longest text that may go with a committed offset, in characters as in Kafka."
    )
    offsets_load_buffer_size: int = integer(
        default=1 * MIB,
        least=1,
        kafka="Kafka's default is 5 MiB.",
        doc="How many bytes of the log are read at once when a coordinator is loaded; a larger batch is read whole.",
    )
    offsets_retention_minutes: int = integer(
        default=7 * 24 * 60,
        least=1,
        doc="How long an offset is kept after its group lost its last member; and for groups without members, and for "
        "topics that nobody subscribes to any more, after its commit.",
    )
    offsets_retention_check_interval_ms: int = long(
        default=600_000, least=1, doc="How often old offsets are looked for."
    )
    offsets_topic_num_partitions: int = integer(
        default=50, least=1, doc="The partitions of __consumer_offsets, when it is created. They must not change later."
    )
    offsets_topic_segment_bytes: int = integer(
        default=100 * MIB,
        least=1 * MIB,
        kafka="Kafka takes less, and then can't create the topic.",
        doc="The segments of __consumer_offsets: small ones are compacted and loaded sooner.",
    )
    offsets_topic_replication_factor: int = short(
        default=3,
        least=1,
        kafka="Kafka waits until there are as many brokers; here it gets as many replicas as there are brokers.",
        doc="The replicas of __consumer_offsets, when it is created.",
    )
    offsets_topic_compression_codec: int = integer(
        default=0,
        least=0,
        most=4,
        doc="How batches of __consumer_offsets are compressed: 0 is not at all, 1 to 4 are gzip, snappy, lz4, zstd.",
    )
    offsets_commit_timeout_ms: int = integer(
        default=5_000, least=1, doc="How long a commit of offsets waits for the replicas at most."
    )
