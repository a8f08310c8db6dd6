"""Batches for the tests of storage, small and plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.protocol.batch_builder import build

START_MS = 1_700_000_000_000


def batch(
    *values: bytes | None,
    timestamps: Sequence[int] | None = None,
    key: bytes | None = b"k",
    **header: Any,
) -> bytearray:
    """One batch with a record for each value, a millisecond apart; what `build` takes goes into its header."""
    times = timestamps or [START_MS + number for number in range(len(values))]
    return build([(key, value, (), time) for value, time in zip(values, times, strict=True)], **header)


def run(*contents: bytes | bytearray) -> bytearray:
    """Batches one after another."""
    return bytearray(b"".join(contents))
