"""Hostile record batches in any number: `python -m tests.fuzz.batches --inputs 10000000`.

Every input is a sound batch, of any codec, damaged in one of the ways below; half of the time its checksum is put right
again, so that the damage gets through to the records. Whatever the bytes: what reads batches gives an answer or one
ProtocolError, what admits them says Refused, and the kernel's two forms say the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from struct import pack_into
from typing import Any

from headrace.errors import ProtocolError, Refused
from headrace.protocol.batch import HEADER_SIZE_BYTES, Batch, scan
from headrace.protocol.batch_admission import admit
from headrace.protocol.batch_builder import build, recompress, rewrite
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.compression import Compression, compress, decompress
from headrace.protocol.control import build_marker, read_control
from headrace.protocol.kernel import Records
from headrace.protocol.kernel_types import Fields
from headrace.protocol.record_admission import RecordRules
from headrace.protocol.records import records_of
from tests.fuzz.campaign import run
from tests.protocol.kernel_forms import COMPILED, PLAIN

SIZE_BYTES_MAX = 1 << 20
RULES = [
    RecordRules(needs_keys=needs_keys, checks_times=checks_times, before_ms_max=500, after_ms_max=500)
    for needs_keys, checks_times in ((True, False), (False, True), (True, True))
]
VARINTS = [
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",
    b"\xff" * 9 + b"\x01",
    b"\xfe" + b"\xff" * 8 + b"\x01",
    b"\xff" * 9 + b"\x02",
    b"\x80" * 5 + b"\x00",
    b"\x80" * 12,
    b"\x01",
    b"\x03",
    b"\x7f",
    b"\xfe\x01",
]
INT32S = [0, 1, -1, 2**31 - 1, -(2**31), 61, 49, 48, 12]
INT64S = [0, 1, -1, -2, 2**63 - 1, -(2**63), 2**62]
INT32_FIELDS = [8, 12, 23, 53, 57]  # length, leader epoch, last offset delta, base sequence, record count
INT64_FIELDS = [0, 27, 35, 43]  # base offset, base and max timestamp, producer id


def sound(random: Random) -> bytes:
    """A batch as a producer, a coordinator or compaction would write it."""
    if random.random() < 0.05:
        return bytes(build_marker(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=3, timestamp_ms=9))
    fields: list[Fields] = [
        (content(random), content(random), [("name", content(random))] * random.choice((0, 0, 1, 3)), 1000 + i)
        for i in range(random.choice((1, 2, 3, 10)))
    ]
    if random.random() < 0.1:
        fields.append((None, bytes(random.choice((10_000, 100_000))), (), 5))
    return bytes(
        build(fields, compression=random.choice(list(Compression)), producer_id=7, producer_epoch=0, base_sequence=0)
    )


def content(random: Random) -> bytes | None:
    return None if random.random() < 0.2 else random.randbytes(random.choice((0, 1, 5, 63, 64, 100)))


def damage(data: bytes, random: Random) -> bytes:
    made = bytearray(data)
    at = random.randrange(len(made)) if random.random() < 0.5 else random.randrange(min(120, len(made)))
    way = random.choice((0, 1, 2, 3, 4, 5, 6, 7) if len(made) >= HEADER_SIZE_BYTES else (0, 1, 2, 3, 6, 7))
    if way == 0:
        del made[at:]
    elif way == 1:
        for _ in range(random.choice((1, 1, 2, 8))):
            made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    elif way == 2:
        varint = random.choice(VARINTS)
        made[at : at + len(varint)] = varint
    elif way == 3:
        made[at:at] = random.choice(VARINTS)
    elif way == 4:
        pack_into(">i", made, random.choice(INT32_FIELDS), random.choice(INT32S))
    elif way == 5:
        pack_into(">q", made, random.choice(INT64_FIELDS), random.choice(INT64S))
    elif way == 6:
        made[at:] = random.randbytes(random.randrange(200))
    else:
        made += data
    return bytes(made)


def mend(data: bytes | bytearray, random: Random) -> bytearray:
    """Give damaged bytes a true length and checksum, half of the time, so that their inside is looked at."""
    made = bytearray(data)
    if len(made) >= HEADER_SIZE_BYTES and random.random() < 0.5:
        pack_into(">i", made, 8, len(made) - 12)
        pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    return made


def check(data: bytearray, random: Random) -> bool:
    """Whether the bytes are a batch whose records can be read. All but the expected errors comes out as it is."""
    view = memoryview(data)
    answered(Refused, lambda: admit(view, random.choice((3, 7, 12))))
    readable = False
    for batch in batches(view, random.random() < 0.5):
        repr(batch)
        if answered(ProtocolError, batch.verify) is ERROR:
            continue
        readable = look_inside(batch)
        if random.random() < 0.25:  # the plain form is what takes the time
            compare(batch)
        if batch.is_control:
            answered(ProtocolError, partial(read_control, batch))
    if random.random() < 0.1:
        compression = random.choice(list(Compression))
        answered(ProtocolError, lambda: decompress(compression, view[HEADER_SIZE_BYTES:], SIZE_BYTES_MAX))
        squeezed = damage(bytes(compress(compression, data)) or b"\0", random)
        answered(ProtocolError, lambda: decompress(compression, squeezed, SIZE_BYTES_MAX))
    return readable


ERROR = object()


def answered(expected: type[Exception], call: Callable[[], Any]) -> Any:
    try:
        return call()
    except expected as error:
        assert str(error)
        return ERROR


def batches(view: memoryview, partial: bool) -> Iterator[Batch]:
    try:
        yield from scan(view, partial=partial)
    except ProtocolError:
        return


def look_inside(batch: Batch) -> bool:
    records = answered(ProtocolError, lambda: records_of(batch, SIZE_BYTES_MAX))
    if records is ERROR:
        return False
    count = len(records)
    mask = bytes(i & 1 for i in range(count))
    found = answered(ProtocolError, records.decode)
    if found is ERROR:
        return False
    assert len(found) == count
    check_model(records, found)
    for rules in RULES:
        answered(Refused, partial(rules.check, batch, records, 1000))
    for horizon in (None, 2000):
        kept = answered(ProtocolError, partial(rewrite, batch, records, mask, delete_horizon_ms=horizon))
        if kept is not ERROR:
            again = Batch(memoryview(kept))
            again.verify()
            assert records_of(again, 2 * SIZE_BYTES_MAX).decode() == [
                record for i, record in enumerate(found) if mask[i]
            ]
    if batch.record_count:
        data = decompress(batch.compression, batch.payload, SIZE_BYTES_MAX)
        again = Batch(memoryview(recompress(batch, data, Compression.LZ4)))
        again.verify()
        assert records_of(again, SIZE_BYTES_MAX).decode() == found
    return True


def check_model(records: Records, found: list[Any]) -> None:
    columns = records.columns()
    assert records.keys() == [record.key for record in found]
    assert list(columns.offsets) == [record.offset for record in found]
    assert list(columns.timestamps) == [record.timestamp for record in found]
    assert sum(records.header_columns().counts) == sum(len(record.headers) for record in found)


def compare(batch: Batch) -> None:
    """The kernel's two forms on the same bytes: the same answers, and the same errors in the same words."""
    if COMPILED is None or batch.size_bytes > 2_000:
        return
    try:
        data = decompress(batch.compression, batch.payload, SIZE_BYTES_MAX) if batch.record_count else batch.payload
    except ProtocolError:
        return
    said: list[Any] = []
    for form in (COMPILED, PLAIN):
        try:
            records = form.Records(data, batch.record_count, batch.base_offset, batch.base_timestamp)
            mask = bytes(i % 3 == 0 for i in range(len(records)))
            said.append(
                [records.decode(), records.latest(), records.timestamp_bounds(), records.is_dense()]
                + [records.first_at_or_after(1001), records.first_without_key(), records.retain(mask)]
                + [list(column) for column in (records.columns().tail_positions, records.columns().record_positions)]
                + [records.retain(mask, 77)]
            )
        except ProtocolError as error:
            said.append([str(error)])
    assert said[0] == said[1]


def campaign(seed: int, inputs: int) -> tuple[int, int]:
    """How many inputs could be read, of how many."""
    random = Random(seed)
    readable = done = 0
    while done < inputs:
        data = sound(random)
        for _ in range(min(50, inputs - done)):
            hostile = mend(damage(data, random), random)
            try:
                readable += check(hostile, random)
            except BaseException:
                print(f"\nseed {seed}, input {done}: {hostile.hex()}", file=sys.stderr)
                raise
            done += 1
    return readable, done


if __name__ == "__main__":
    run(campaign, __doc__)
