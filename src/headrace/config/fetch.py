"""What fetches may take of a node."""

from __future__ import annotations

from headrace.config.group import Group, integer, long
from headrace.config.topic import KIB, MIB


class FetchConfig(Group):
    """How much a fetch gives at most, and what the node remembers of those who fetch."""

    fetch_max_bytes: int = integer(
        default=55 * MIB,
        least=1 * KIB,
        doc="The most bytes of records in the reply to one fetch. A first batch that is larger comes all the same.",
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        default=1000,
        least=0,
        doc="How many fetch sessions there may be. Who finds no room names all its partitions in each fetch.",
    )
    min_incremental_fetch_session_eviction_ms: int = integer(
        default=120_000,
        least=0,
        kafka="In Kafka it can't be set by the user.",
        doc="How long a fetch session is safe from larger ones, and how long it may lie unused.",
    )
    fetch_replies_max_bytes: int = long(
        default=256 * MIB,
        least=1 * MIB,
        kafka="Kafka has no such limit: it sends from files, and reads into memory only where it must.",
        doc="The records of all replies together that clients have not taken yet. Near it replies get smaller; at it, "
        "fetches wait.",
    )
