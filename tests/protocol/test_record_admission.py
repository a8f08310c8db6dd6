"""What a topic wants of records: which are refused, by name, and which pass."""

from __future__ import annotations

import pytest

from headrace.errors import Error, Refused
from headrace.protocol.batch import Batch
from headrace.protocol.batch_builder import build
from headrace.protocol.compression import Compression
from headrace.protocol.kernel_types import Fields
from headrace.protocol.record_admission import NO_LIMIT_MS, RecordRules, RefusedRecords
from headrace.protocol.records import records_of

NOW_MS = 1_700_000_000_000
FIELDS: list[Fields] = [(b"k", b"v", (), NOW_MS), (None, b"w", (), NOW_MS - 5)]


def rules(
    *,
    needs_keys: bool = False,
    checks_times: bool = True,
    before_ms_max: int = NO_LIMIT_MS,
    after_ms_max: int = NO_LIMIT_MS,
) -> RecordRules:
    return RecordRules(
        needs_keys=needs_keys, checks_times=checks_times, before_ms_max=before_ms_max, after_ms_max=after_ms_max
    )


def check(wanted: RecordRules, fields: list[Fields], now_ms: int, compression: Compression = Compression.NONE) -> None:
    batch = Batch(memoryview(build(fields, compression=compression)))
    wanted.check(batch, records_of(batch, 1000), now_ms)


def test_a_compacted_topic_needs_keys() -> None:
    with pytest.raises(RefusedRecords, match="Record 1 has no key") as refused:
        check(rules(needs_keys=True), FIELDS, NOW_MS)
    assert refused.value.error is Error.INVALID_RECORD
    assert [index for index, _ in refused.value.record_errors] == [1]
    check(rules(needs_keys=True), FIELDS[:1], NOW_MS)


def test_timestamps_after_the_limit_are_refused() -> None:
    check(rules(after_ms_max=100), FIELDS, NOW_MS - 100)
    with pytest.raises(RefusedRecords, match="the topic takes any to") as refused:
        check(rules(after_ms_max=100), FIELDS, NOW_MS - 101)
    assert refused.value.error is Error.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == [0]
    check(rules(after_ms_max=100, checks_times=False), FIELDS, NOW_MS - 101)


def test_timestamps_before_the_limit_are_looked_up_in_the_records() -> None:
    check(rules(before_ms_max=100), FIELDS, NOW_MS + 95, Compression.GZIP)
    with pytest.raises(Refused, match=f"Record 1 has timestamp {NOW_MS - 5}, and the topic takes {NOW_MS - 4} to"):
        check(rules(before_ms_max=100), FIELDS, NOW_MS + 96, Compression.GZIP)


def test_records_without_a_timestamp_pass() -> None:
    for before_ms_max in (100, NO_LIMIT_MS):
        check(rules(before_ms_max=before_ms_max, after_ms_max=100), [(b"k", b"v", (), -1)], NOW_MS)


def test_only_what_the_header_does_not_tell_opens_every_batch() -> None:
    assert not rules(after_ms_max=100).opens_all
    assert rules(before_ms_max=100).opens_all
    assert not rules(before_ms_max=100, checks_times=False).opens_all
    assert rules(needs_keys=True, checks_times=False).opens_all
