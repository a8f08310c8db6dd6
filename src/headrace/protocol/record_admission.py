"""What a topic wants of the records inside of a produced batch: keys, and timestamps within its limits.

A batch is refused whole, but a producer is told which of its records are at fault (KIP-467), so that it does not blame
the others. Sound batches are only walked by the kernel; what is wrong is looked for in those that are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, repeat
from typing import Final

from headrace.errors import Error, ProtocolError, Refused
from headrace.protocol.batch import NO_TIMESTAMP, Batch
from headrace.protocol.kernel import Records
from headrace.protocol.records import records_of

__all__ = ["RecordRules", "RefusedRecords"]

NO_LIMIT_MS: Final = 0x7FFFFFFFFFFFFFFF
NAMED_MAX: Final = 4000
"""So many records of a batch are named, which are more than there can be in a batch of 16 KB."""
NAMED_OF_RECORDS_MAX: Final = 100_000
"""A batch of more records is not searched: a small one can decompress to millions."""
OPENED_BYTES_MAX: Final = 1 << 20
"""Who finds by its header that a batch is to be refused opens it only up to this size, as others wait meanwhile."""


class RefusedRecords(Refused):
    """A batch that is refused for some of its records, each with its index and what is wrong with it."""

    def __init__(self, error: Error, text: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(error, text)
        self.record_errors = record_errors


class RecordRules:
    """The settings of a topic that speak of records, worked out once."""

    __slots__ = ("after_ms_max", "before_ms_max", "checks_times", "needs_keys")

    def __init__(self, *, needs_keys: bool, checks_times: bool, before_ms_max: int, after_ms_max: int) -> None:
        """Keys are for compacted topics, timestamps for those with CreateTime; `message.timestamp.before.max.ms` and
        `message.timestamp.after.max.ms` are the limits."""
        self.needs_keys = needs_keys
        self.checks_times = checks_times
        self.before_ms_max = before_ms_max
        self.after_ms_max = after_ms_max

    @property
    def opens_all(self) -> bool:
        """The header has the greatest timestamp, and we trust it. It has neither the least one nor the keys."""
        return self.needs_keys or (self.checks_times and self.before_ms_max < NO_LIMIT_MS)

    def check(self, batch: Batch, records: Records, now_ms: int) -> None:
        """Refuses an opened batch with records that the topic does not take. Raises ProtocolError if it can't be read.

        Records without a timestamp (-1) pass, as in Kafka.
        """
        if (self.needs_keys and records.first_without_key() >= 0) or not self._is_in_time(batch, records, now_ms):
            raise self._refusal(batch, records, now_ms)

    def too_late(self, batch: Batch, now_ms: int) -> Refused:
        """For a batch that was not opened, and whose greatest timestamp is beyond the limit."""
        try:
            return self._refusal(batch, records_of(batch, OPENED_BYTES_MAX), now_ms)
        except ProtocolError:
            return self._refusal_of_header(batch, now_ms)

    def _is_in_time(self, batch: Batch, records: Records, now_ms: int) -> bool:
        if not self.checks_times:
            return True
        least = greatest = batch.max_timestamp
        if self.before_ms_max < NO_LIMIT_MS:
            least, greatest = records.timestamp_bounds()
        return self._takes(least, now_ms) and self._takes(greatest, now_ms)

    def _takes(self, timestamp: int, now_ms: int) -> bool:
        return timestamp == NO_TIMESTAMP or -self.after_ms_max <= now_ms - timestamp <= self.before_ms_max

    def _refusal(self, batch: Batch, records: Records, now_ms: int) -> Refused:
        if len(records) > NAMED_OF_RECORDS_MAX:
            without_key = records.first_without_key() if self.needs_keys else -1
            if without_key < 0:
                return self._refusal_of_header(batch, now_ms)
            wrong = [(without_key, Error.INVALID_RECORD, _no_key(without_key))]
        else:
            wrong = list(islice(self._wrong(records, now_ms), NAMED_MAX))
            if not wrong:
                return self._refusal_of_header(batch, now_ms)
        is_time = any(error is Error.INVALID_TIMESTAMP for _, error, _ in wrong)
        refused_for = Error.INVALID_TIMESTAMP if is_time else Error.INVALID_RECORD
        text = next(why for _, error, why in wrong if error is refused_for)
        if len(wrong) > 1:
            about = "At least " if len(wrong) == NAMED_MAX else ""
            text = f"{text} {about}{len(wrong)} of {len(records)} records are refused."
        return RefusedRecords(refused_for, text, [(index, why) for index, _, why in wrong])

    def _wrong(self, records: Records, now_ms: int) -> Iterator[tuple[int, Error, str]]:
        key_sizes = records.outline()[2::4] if self.needs_keys else repeat(0, len(records))
        timestamps = records.timestamps() if self.checks_times else repeat(NO_TIMESTAMP, len(records))
        for index, (key_size, timestamp) in enumerate(zip(key_sizes, timestamps, strict=True)):
            if key_size < 0:
                yield index, Error.INVALID_RECORD, _no_key(index)
            elif not self._takes(timestamp, now_ms):
                yield index, Error.INVALID_TIMESTAMP, f"Record {index} has {self._out_of_range(timestamp, now_ms)}"

    def _refusal_of_header(self, batch: Batch, now_ms: int) -> Refused:
        """Nobody is to blame by name."""
        return Refused(Error.INVALID_TIMESTAMP, f"The batch has {self._out_of_range(batch.max_timestamp, now_ms)}")

    def _out_of_range(self, timestamp: int, now_ms: int) -> str:
        first = "any" if self.before_ms_max == NO_LIMIT_MS else f"{now_ms - self.before_ms_max}"
        return f"timestamp {timestamp}, and the topic takes {first} to {now_ms + self.after_ms_max}."


def _no_key(index: int) -> str:
    return f"Record {index} has no key, and a compacted topic needs one in every record."
