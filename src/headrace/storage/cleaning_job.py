"""What a cleaning is told and what it tells: plain values, which go to another process and come back as JSON."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final, TypeAlias

from headrace.errors import HeadraceError, ProtocolError
from headrace.named_tuple import NamedTuple
from headrace.plain import field, plain, values_of
from headrace.storage.disk import DiskError, SyncFailed
from headrace.storage.index import IndexDamaged
from headrace.storage.transaction_index import AbortedTransaction

INT64_MAX: Final = 2**63 - 1


class Source(NamedTuple):
    """A closed segment that is cleaned."""

    base_offset: int
    size_bytes: int
    modified_ms: int
    has_transaction_index: bool


@plain
class CleaningJob:
    """One cleaning of one log, as it was when the job was made: what comes later is behind `end_offset`."""

    folder: str
    sources: list[Source]
    """The closed segments from the first on, up to where the log may be cleaned."""
    first_dirty_offset: int
    end_offset: int
    """Where the last source ends: the last stable offset and the active segment are at or behind it."""
    now_ms: int
    secret: bytes
    """For the hash of keys."""
    aborted_after: list[AbortedTransaction] = field(default_factory=list)
    """Aborted transactions that begin in a source and end behind the last."""
    last_offsets: dict[int, int] = field(default_factory=dict)
    """By producer id, the last offset of its last batch, which carries its last sequence."""
    last_epochs: dict[int, int] = field(default_factory=dict)
    """By producer id, the epoch of its last marker, for those that have no batch."""
    delete_retention_ms: int = 86_400_000
    max_message_bytes: int = 1 << 20
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    decompressed_bytes_max: int = 128 << 20
    dedupe_buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 << 10
    bytes_per_second: float = float("inf")

    def encode(self) -> bytes:
        return json.dumps(values_of(self) | {"secret": self.secret.hex()}).encode()

    @classmethod
    def decode(cls, content: bytes) -> CleaningJob:
        fields = json.loads(content)
        fields["secret"] = bytes.fromhex(fields["secret"])
        fields["sources"] = [Source(*source) for source in fields["sources"]]
        fields["aborted_after"] = [AbortedTransaction(*aborted) for aborted in fields["aborted_after"]]
        for by_producer in ("last_offsets", "last_epochs"):
            fields[by_producer] = {int(producer): value for producer, value in fields[by_producer].items()}
        return cls(**fields)


class Worked(NamedTuple):
    """A bounded piece of work was done."""

    bytes_read: int
    bytes_written: int


class Replacement(NamedTuple):
    """A new segment is written and durable, under names that end in `.cleaned`: the log swaps it in."""

    base_offset: int
    """Its own, and that of the first segment that it was made from."""
    base_offsets: list[int]
    """Of all of these."""
    size_bytes: int
    modified_ms: int
    has_transaction_index: bool


class Cleaned(NamedTuple):
    """The cleaning is over."""

    end_offset: int
    """Before it, each key has one record, once all replacements are swapped in."""
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    oversized_batches: int = 0
    """Batches that grew beyond max.message.bytes."""
    memory_bytes: int = 0
    """The most that the worker process had, if there was one."""


Step: TypeAlias = Worked | Replacement | Cleaned


class Trouble(Enum):
    """Why a cleaning failed, and so what comes next."""

    DAMAGED = "damaged"
    """What is in the log can't be cleaned: the partition is set aside."""
    DEFECT = "defect"
    """Ours: the partition is set aside."""
    INDEX_DAMAGED = "index damaged"
    """The log makes the index anew, and it is tried again."""
    TRANSIENT = "transient"
    """The disk did not do as it was asked, the worker died: it is tried again, later and later."""
    SYNC_FAILED = "sync failed"
    """The log directory is offline (hazard 8)."""


class CleaningFailed(HeadraceError):
    def __init__(self, trouble: Trouble, reason: str) -> None:
        self.trouble = trouble
        super().__init__(reason)


def trouble_of(error: Exception) -> Trouble:
    if isinstance(error, CleaningFailed):
        return error.trouble
    if isinstance(error, SyncFailed):
        return Trouble.SYNC_FAILED
    if isinstance(error, IndexDamaged):
        return Trouble.INDEX_DAMAGED
    if isinstance(error, DiskError):
        return Trouble.TRANSIENT
    if isinstance(error, HeadraceError | ProtocolError):
        return Trouble.DAMAGED
    return Trouble.DEFECT


_KINDS: Final[dict[str, type[Replacement] | type[Cleaned]]] = {"replacement": Replacement, "cleaned": Cleaned}


def encode_step(step: Replacement | Cleaned) -> bytes:
    """A line."""
    return json.dumps({type(step).__name__.lower(): step._asdict()}).encode() + b"\n"


def encode_failure(error: Exception) -> bytes:
    reason = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    fields = {"trouble": trouble_of(error).value, "reason": reason}
    if isinstance(error, SyncFailed):
        fields |= {"path": error.path, "reason": error.reason}
    return json.dumps({"failed": fields}).encode() + b"\n"


def decode_line(line: bytes) -> Replacement | Cleaned:
    """The step that a line of the other process stands for; raises SyncFailed or CleaningFailed when it says that."""
    ((kind, fields),) = json.loads(line).items()
    if kind == "failed":
        if "path" in fields:
            raise SyncFailed(fields["path"], fields["reason"])
        raise CleaningFailed(Trouble(fields["trouble"]), fields["reason"])
    values: Any = fields
    return _KINDS[kind](**values)
