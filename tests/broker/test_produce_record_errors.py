"""Which records of a refused batch are to blame (KIP-467), so that a producer does not blame the others."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Error
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.compression import Compression
from tests.broker.test_produce import Client, answer_in, client, request_of
from tests.replica.hosts import START_MS, Host

NOW_MS = START_MS + 1_000_000
"""What the clock of the tests says."""
DAY_MS = 86_400_000
FUTURE_MS, OLD_MS = NOW_MS + 10 * DAY_MS, NOW_MS - 10 * DAY_MS
BLAME_SINCE = 8

KEY, NONE = (b"k", NOW_MS), (None, NOW_MS)
LATE, OLD = (b"k", FUTURE_MS), (b"k", OLD_MS)

COMPACTED = {"cleanup_policy": "compact"}
BEFORE = {"message_timestamp_before_max_ms": str(DAY_MS)}
APPEND_TIME = {"message_timestamp_type": "LogAppendTime"}
ZSTD = {"compression_type": "zstd"}

CASES: list[tuple[dict[str, str], list[tuple[bytes | None, int]], Error, list[int]]] = [
    (COMPACTED, [KEY, NONE, KEY, NONE], Error.INVALID_RECORD, [1, 3]),
    (COMPACTED | ZSTD, [KEY, NONE, KEY, NONE], Error.INVALID_RECORD, [1, 3]),
    (COMPACTED | APPEND_TIME, [(None, FUTURE_MS), LATE], Error.INVALID_RECORD, [0]),
    (COMPACTED, [NONE] * 3, Error.INVALID_RECORD, [0, 1, 2]),
    ({}, [KEY, LATE, KEY], Error.INVALID_TIMESTAMP, [1]),
    ({}, [LATE, KEY, LATE], Error.INVALID_TIMESTAMP, [0, 2]),
    (ZSTD, [LATE, KEY, LATE], Error.INVALID_TIMESTAMP, [0, 2]),
    (COMPACTED, [KEY, LATE], Error.INVALID_TIMESTAMP, [1]),
    (BEFORE, [OLD, KEY, LATE, (None, -1)], Error.INVALID_TIMESTAMP, [0, 2]),
    (BEFORE | ZSTD, [OLD, KEY, LATE], Error.INVALID_TIMESTAMP, [0, 2]),
    # A record without a key is told so, whatever its timestamp; one bad timestamp makes it INVALID_TIMESTAMP.
    (COMPACTED | BEFORE, [NONE, OLD, KEY, (None, FUTURE_MS)], Error.INVALID_TIMESTAMP, [0, 1, 3]),
]


def ask(host: Host, producer: Client, content: bytearray, version: int = 12) -> Any:
    slot = producer.send(request_of(content, 1), version)
    host.drain()
    assert slot is not None
    return answer_in(slot, version).responses[0].partition_responses[0]


def blamed(answer: Any) -> list[int]:
    return [error.batch_index for error in answer.record_errors]


def batch_of(records: list[tuple[bytes | None, int]], compression: Compression = Compression.NONE) -> bytearray:
    return build([(key, b"v", (), timestamp) for key, timestamp in records], compression=compression)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
@pytest.mark.parametrize(("settings", "records", "error", "indexes"), CASES)
def test_every_record_that_is_at_fault_is_named_and_no_other(
    settings: dict[str, str],
    records: list[tuple[bytes | None, int]],
    error: Error,
    indexes: list[int],
    compression: Compression,
) -> None:
    host, producer = client(**settings)
    answer = ask(host, producer, batch_of(records, compression))
    assert (Error(answer.error_code), blamed(answer)) == (error, indexes)
    assert answer.error_message.endswith(".")
    for entry in answer.record_errors:
        expected = "no key" if records[entry.batch_index][0] is None else f"{records[entry.batch_index][1]}"
        assert expected in entry.batch_index_error_message
    assert host.partition().log_end_offset == 0


def test_versions_before_8_have_no_room_for_it() -> None:
    for version in range(3, 14):
        host, producer = client(**COMPACTED)
        answer = ask(host, producer, batch_of([KEY, NONE]), version)
        assert answer.error_code == Error.INVALID_RECORD
        assert blamed(answer) == ([1] if version >= BLAME_SINCE else [])


def test_the_reply_of_the_next_request_blames_nobody() -> None:
    host, producer = client(**COMPACTED)
    assert blamed(ask(host, producer, batch_of([NONE]))) == [0]
    assert blamed(ask(host, producer, batch_of([KEY]))) == []


def test_many_records_at_fault_are_named_within_bounds() -> None:
    host, producer = client(**COMPACTED, max_message_bytes="10000000")
    for count, named in ((4000, 4000), (4001, 4000), (100_001, 1)):
        answer = ask(host, producer, batch_of([NONE] * count))
        assert blamed(answer) == list(range(named))
        host, producer = client()
        answer = ask(host, producer, batch_of([LATE] * count))
        assert blamed(answer) == list(range(named if named > 1 else 0))
        host, producer = client(**COMPACTED, max_message_bytes="10000000")


def test_a_header_that_names_a_time_that_no_record_has_blames_nobody() -> None:
    host, producer = client()
    content = batch_of([KEY])
    content[35:43] = FUTURE_MS.to_bytes(8)
    content[17:21] = crc32c(content[21:]).to_bytes(4)
    answer = ask(host, producer, content)
    assert (answer.error_code, blamed(answer)) == (Error.INVALID_TIMESTAMP, [])


def test_what_takes_long_to_open_is_not_opened_only_to_blame() -> None:
    host, producer = client()
    answer = ask(host, producer, build([(b"k", bytes(3_000_000), (), FUTURE_MS)], compression=Compression.GZIP))
    assert (answer.error_code, blamed(answer)) == (Error.INVALID_TIMESTAMP, [])
