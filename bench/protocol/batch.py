"""What a batch costs on the append path above its checksum: `python -m bench.protocol.batch`.

Every batch must be checksummed; what we add is parsing its header, comparing, and patching offset and leader epoch.
The bar is 2 µs above the CRC at 16 KB. Rounds are interleaved, and the best of each counts.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka.record.memory_records import MemoryRecords

from bench.protocol.codec import best
from headrace.protocol.batch import Batch, scan
from headrace.protocol.batch_admission import admit
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c

SIZES = (1_000, 16_000, 1_000_000)


def jobs(data: bytearray) -> list[Callable[[], object]]:
    """The checksum alone, the header alone, and what an append does with a batch in three ways."""
    view, stamped = memoryview(data), memoryview(bytearray(data))
    under_the_crc = view[21:]

    def append() -> None:
        batch = Batch(view)
        batch.verify()
        batch.assign(0, 7)

    def append_time() -> None:
        batch = Batch(stamped)
        batch.assign(0, 7)
        batch.set_log_append_time(1_000)

    return [
        lambda: crc32c(under_the_crc),
        lambda: Batch(view),
        append,
        lambda: admit(view, 9).assign(0, 7),
        append_time,
    ]


def main() -> None:
    print("µs a batch; in brackets, above the CRC alone")
    print(
        f"{'batch':>9} {'CRC':>8} {'parse':>7} {'parse, check, patch':>20} {'as a produce':>18} {'LogAppendTime':>17}"
    )
    for size in SIZES:
        data = build([(None, bytes(size - 75), (), 1)])
        crc, parse, *appends = best(jobs(data))
        cells = " ".join(f"{append:9.2f} [{append - crc:5.2f}]" for append in appends)
        print(f"{len(data):>9,} {crc:8.2f} {parse:7.2f}   {cells}")

    many = bytes(build([(None, bytes(925), (), 1)])) * 1_000
    ours, theirs = best([lambda: sum(1 for _ in scan(many)), lambda: kafka_python(many)])
    print(
        f"\nscan of 1,000 batches of 1 KB: {ours / 1_000:.2f} µs a batch, kafka-python {theirs / ours:.1f} times that"
    )


def kafka_python(data: bytes) -> None:
    records = MemoryRecords(data)
    while records.has_next():
        records.next_batch()


if __name__ == "__main__":
    main()
