"""The record kernel, compiled and as it stands, beside the record parsers of aiokafka (C) and kafka-python (Python).

    python -m bench.protocol.kernel

The bars, compiled: walk at least 5 million records of 100 B a second; decode records of 1 KB into column buffers at
2 GB/s or more. Rounds are interleaved, and the best of each counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from kafka.record.memory_records import MemoryRecords as KafkaMemoryRecords

from bench.protocol.codec import best
from headrace.protocol.batch import Batch
from headrace.protocol.batch_builder import build
from headrace.protocol.kernel_types import Fields
from tests.protocol.kernel_forms import FORMS, Form

PARSERS = (AioMemoryRecords, KafkaMemoryRecords)
SHAPES = {"100 B": (8, 83, 10_000), "1 KB": (8, 1_005, 1_000)}  # key, value, records


def jobs(form: Form, batch: Batch, fields: list[Fields]) -> dict[str, Callable[[], Any]]:
    data, count = bytes(batch.payload), batch.record_count
    records = form.Records(data, count)
    columns = records.columns()
    every_second = bytes(i & 1 for i in range(count))
    out, ends = bytearray(len(data)), array("i", [0]) * (count + 1)

    def to_arrow() -> None:
        found = form.Records(data, count).columns()
        end = form.gather(found.keys, out, 0, ends, 1)
        form.gather(found.values, out, end, ends, 1)

    return {
        "walk": records.check,
        "columns": records.columns,
        "columns into Arrow's buffers": to_arrow,
        "keys as objects": records.keys,
        "records as objects": records.decode,
        "compact to every second": lambda: records.retain(every_second),
        "the same with a delete horizon": lambda: records.retain(every_second, 5),
        "encode objects": lambda: form.encode(fields),
        "encode columns": lambda: form.encode_columns(columns.keys, columns.values, columns.timestamps),
    }


def main() -> None:
    for name, (key, value, count) in SHAPES.items():
        fields: list[Fields] = [(bytes(key), bytes(value), (), i) for i in range(count)]
        batch = Batch(memoryview(build(fields)))
        data = bytes(batch.view)
        print(
            f"\nrecords of {name}: million records and GB a second"
            + " " * 12
            + "  ".join(f"{f.name:>16}" for f in FORMS)
        )
        by_form = [jobs(form, batch, fields) for form in FORMS]
        for job in by_form[0]:
            times = best([form_jobs[job] for form_jobs in by_form])
            cells = "  ".join(f"{count / time:8.2f} {batch.size_bytes / time / 1e3:7.2f}" for time in times)
            print(f"  {job:<60} {cells}")
        ours, aio, kafka = best([by_form[-1]["records as objects"], *(parser(kind, data) for kind in PARSERS)])
        print(f"  as objects, of the {FORMS[-1].name} time: aiokafka {aio / ours:.1f}, kafka-python {kafka / ours:.1f}")


def parser(memory_records: Any, data: bytes) -> Callable[[], object]:
    return lambda: list(memory_records(data).next_batch())


if __name__ == "__main__":
    main()
