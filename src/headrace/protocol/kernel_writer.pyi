from array import array
from collections.abc import Iterable, Sequence

from headrace.protocol.kernel_types import Buffer, Column, Columns, Encoded, Fields, HeaderColumns, Retained, Row

__all__ = ["COMPILED", "encode", "encode_columns", "encode_rows", "gather", "rebase", "validity"]

COMPILED: bool

def encode(
    records: Iterable[Fields], base_timestamp: int | None = None, offset_deltas: Sequence[int] | None = None
) -> Encoded: ...
def encode_rows(rows: list[Row]) -> bytearray: ...
def encode_columns(
    keys: Column | None,
    values: Column | None,
    timestamps: array[int],
    headers: HeaderColumns | None = None,
    *,
    start: int = 0,
    size_bytes_max: int = 0x7FFFFFFF,
) -> Encoded: ...
def rebase(columns: Columns, mask: Buffer, base_timestamp: int) -> Retained: ...
def gather(column: Column, out: bytearray | memoryview, at: int, ends: array[int], first: int) -> int: ...
def validity(lengths: array[int], bitmap: bytearray | memoryview, first: int) -> int: ...
