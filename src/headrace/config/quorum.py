"""The metadata quorum: its elections, its log, and how the controller knows which brokers are alive."""

from __future__ import annotations

from headrace.config.group import Group, integer, long
from headrace.config.topic import DAY_MS, HOUR_MS, MIB
from headrace.errors import Error, Refused


class QuorumConfig(Group):
    """What a node needs to be a voter, the controller, and a broker that a controller knows."""

    controller_quorum_election_timeout_ms: int = integer(
        default=1000,
        least=1,
        doc="How long a voter without a leader waits before it stands for election; by chance up to twice as long.",
    )
    controller_quorum_fetch_timeout_ms: int = integer(
        default=2000,
        least=1,
        doc="How long a voter goes without a fetch from the leader before it stands for election, and how long, and "
        "half of it again, a leader lasts that a majority has not fetched from.",
    )
    controller_quorum_election_backoff_max_ms: int = integer(
        default=1000,
        least=1,
        doc="The longest that a candidate which was not elected waits for its next try.",
    )
    controller_quorum_request_timeout_ms: int = integer(
        default=2000,
        least=1,
        doc="How long a voter waits for the answer of another.",
    )
    controller_quorum_retry_backoff_ms: int = integer(
        default=20,
        least=0,
        doc="How long a voter waits before it asks again when it got no answer.",
    )
    broker_heartbeat_interval_ms: int = integer(
        default=2000,
        least=1,
        doc="How often a broker tells the controller that it is alive.",
    )
    broker_session_timeout_ms: int = integer(
        default=9000,
        least=1,
        doc="How long the controller does not hear of a broker before it fences it and others lead in its place.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        default=20 * MIB,
        least=1,
        doc="How much the metadata log grows before the next snapshot of it is written.",
    )
    metadata_log_max_snapshot_interval_ms: int = long(
        default=HOUR_MS,
        least=0,
        doc="How long what was committed goes without a snapshot. With 0, only the size counts.",
    )
    metadata_max_retention_bytes: int = long(
        default=100 * MIB,
        least=-1,
        doc="How large the metadata log and its snapshots get before the oldest go; the latest snapshot and what "
        "follows it always stay. With -1, nothing goes by size.",
    )
    metadata_max_retention_ms: int = long(
        default=7 * DAY_MS,
        least=-1,
        doc="How old a snapshot of the metadata gets before it goes; the latest always stays. With -1, nothing goes by "
        "age.",
    )

    def check(self) -> None:
        if self.broker_heartbeat_interval_ms >= self.broker_session_timeout_ms:
            raise Refused(
                Error.INVALID_CONFIG,
                f"broker.heartbeat.interval.ms is {self.broker_heartbeat_interval_ms}, and must be less than "
                f"broker.session.timeout.ms, {self.broker_session_timeout_ms}, or brokers are fenced between "
                "heartbeats.",
            )
