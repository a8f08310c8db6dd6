"""How long a node waits for what. PURE."""

from __future__ import annotations

from headrace.plain import plain_frozen


@plain_frozen
class Timing:
    """Kafka's controller.quorum.* settings, with Kafka's defaults."""

    election_timeout_ms: int = 1000
    """Without a leader, a voter waits this long, and up to twice as long by chance, before it stands for election."""
    fetch_timeout_ms: int = 2000
    """A follower without a successful fetch for this long stands for election; so long a leader lasts without a
    majority, and half of it again."""
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    seek_ms: int = 100
    """How often a node without a leader asks a voter whether it knows one."""
    fetch_wait_ms: int = 500
    """How long a leader may hold back a fetch that has nothing new."""
    fetch_bytes_max: int = 8 << 20

    @property
    def check_quorum_ms(self) -> int:
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_epoch_ms(self) -> int:
        return self.fetch_timeout_ms // 2
