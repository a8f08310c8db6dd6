"""What can be set for a client as a whole. Producers and consumers have their own settings beside these."""

from dataclasses import dataclass, fields

from headrace.client.arguments import seconds, text, whole

__all__ = ["Settings"]


@dataclass(slots=True, kw_only=True)
class Settings:
    client_id: str = "headrace"
    connect_timeout_s: float = 10.0
    """For a connection to come up, and again for the broker to say which versions it speaks."""
    request_timeout_s: float = 30.0
    """For the answer to a request; a broker that takes longer loses the connection."""
    operation_timeout_s: float = 60.0
    """For a whole call of admin or lookup, with all its tries; 0 is for one."""
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    """Between tries: twice as long after each failure, up to the maximum, a fifth more or less by chance."""
    reconnect_backoff_s: float = 0.05
    reconnect_backoff_max_s: float = 1.0
    metadata_max_age_s: float = 300.0
    """The map of leaders is asked for again after this time even when nothing has failed."""
    response_bytes_max: int = 256 << 20

    def __post_init__(self) -> None:
        text("client_id", self.client_id, empty=True)
        for field in fields(self):
            if field.name.endswith("_s"):
                zero = "backoff" in field.name or field.name == "operation_timeout_s"
                seconds(field.name, getattr(self, field.name), zero=zero)
        whole("response_bytes_max", self.response_bytes_max, 1)
