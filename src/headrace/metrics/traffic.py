"""What went in and out of a topic on this node: one object that its partitions share."""

from __future__ import annotations


class TopicTraffic:
    """Plain integers that the partitions add to. Never by partition: there may be ten thousand of them."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "fetch_errors",
        "messages_in",
        "messages_out",
        "produce_errors",
        "replicated_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.messages_out = 0
        """By offsets: what compaction left out counts as read."""
        self.replicated_bytes_out = 0
        self.produce_errors = 0
        self.fetch_errors = 0
