"""How a call of the client can end badly, besides `Refused`: told apart by what the caller knows afterwards."""

from headrace.errors import HeadraceError, Refused

__all__ = [
    "BufferFull",
    "Closed",
    "Fenced",
    "LogTruncated",
    "MustAbort",
    "NoOffset",
    "NotSent",
    "Uncertain",
    "Unreachable",
    "WrongArgument",
]


class WrongArgument(HeadraceError, ValueError):
    """An argument that no call can be made with: the sentence names it, and says what it can be. Nothing was done."""


class Unreachable(HeadraceError):
    """No broker answers; the sentence says which addresses were tried and why each failed."""


class Closed(HeadraceError):
    """The client, producer or consumer was closed, maybe while somebody waited for it."""


class NotSent(HeadraceError):
    """The record was given up before it was sent: it is certainly in no log."""


class Uncertain(HeadraceError):
    """The record was sent and no answer settles its fate: it may be in the log, or get there (hazard 14).

    To send it again may double it. A history must record it as "maybe", never as "failed".
    """


class BufferFull(HeadraceError):
    """The producer holds as many unacknowledged bytes as it may. `await producer.room()`, then send again."""

    def __init__(self, text: str, size_bytes: int) -> None:
        super().__init__(text)
        self.size_bytes = size_bytes
        """Of the record that there is no room for."""


class NoOffset(HeadraceError):
    """A partition's position is unknown or out of range, and `auto_offset_reset` is "none"."""

    def __init__(self, text: str, topic: str, partition: int) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition


class LogTruncated(NoOffset):
    """Records that were read, or were next, are no longer in the log: a leader change cut them off (KIP-320).

    From `divergent_offset` on the log holds other records than it did. `seek` there, or anywhere, to go on.
    """

    def __init__(self, text: str, topic: str, partition: int, offset: int, divergent_offset: int | None) -> None:
        super().__init__(text, topic, partition)
        self.offset = offset
        self.divergent_offset = divergent_offset


class MustAbort(Refused):
    """Something of the transaction is not in the log, or nobody knows: it can't be committed. Abort, and try again."""


class Fenced(Refused):
    """Another producer has taken the transactional id, or another member the place in the group. Make a new one."""
