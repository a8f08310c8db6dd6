"""The same load from librdkafka (confluent-kafka), where it is installed: what a fast client in C would see."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from headrace.cli import interrupts
from headrace.cli.bench_load import BUFFER_BYTES, PAYLOADS, STAMP, Load, Watch
from headrace.cli.bench_result import Result
from headrace.cli.latencies import Latencies
from headrace.cli.progress import Bar
from headrace.errors import HeadraceError

DRAIN_S: Final = 10.0
LOG_LEVEL: Final = 3  # errors only: what it notes would stand beside the answer
LOOK_EVERY: Final = 50
STEP_S: Final = 0.1
"""The longest that the library is called for: in there nobody hears of Ctrl-C."""


def load_library() -> Any:
    try:
        import confluent_kafka
    except ImportError:
        raise HeadraceError(
            "confluent-kafka is not installed: `pip install confluent-kafka`, or measure with --client headrace."
        ) from None
    return confluent_kafka


def version() -> str:
    return f"librdkafka {load_library().libversion()[0]}"


def _producer(bootstrap: str, load: Load) -> Any:
    return load_library().Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": load.acks,
            "enable.idempotence": load.acks == "all",
            "compression.type": load.compression,
            "batch.size": load.batch_bytes,
            "linger.ms": load.linger_ms,
            "queue.buffering.max.kbytes": max(BUFFER_BYTES, 4 * load.record_bytes) >> 10,
            "log_level": LOG_LEVEL,
            "message.max.bytes": max(1 << 20, load.record_bytes + 1024),
        }
    )


@contextmanager
def _sending(bootstrap: str, load: Load) -> Iterator[Any]:
    """A producer that is done with its topic at the end: one that still has records for it would make it again.

    Whoever measures lets no exception of Ctrl-C fly: it would be raised in a callback that the producer calls.
    """
    producer = _producer(bootstrap, load)
    try:
        yield producer
    finally:
        producer.purge()
        producer.flush(0)


def _sent(producer: Any, topic: str, value: bytes, done: Any, stop: interrupts.Counted) -> bool:
    while not stop:
        try:
            producer.produce(topic, value, on_delivery=done)
            return True
        except BufferError:
            producer.poll(0.01)
    return False


def _drain(producer: Any, stop: interrupts.Counted) -> None:
    """What is under way; a second Ctrl-C gives it up."""
    deadline = time.perf_counter() + DRAIN_S
    while producer.flush(STEP_S) and stop.count < 2 and time.perf_counter() < deadline:
        pass


def produce(bootstrap: str, load: Load, result: Result, bar: Bar) -> None:
    latencies = result.latencies["acknowledged"] = Latencies()
    payloads, sent = load.payloads(), 0

    def settled(due: float, is_counted: bool) -> Any:
        def done(error: Any, message: Any) -> None:
            if error is not None:
                result.fail(error)
            elif is_counted and not watch.is_stopped:
                latencies.add(time.perf_counter() - due)
                result.records += 1
                result.bytes += load.record_bytes

        return done

    with interrupts.counted() as stop, _sending(bootstrap, load) as producer:
        watch, begun = Watch(load, result, bar), time.perf_counter()
        while not stop and not watch.is_over() and not result.failed:
            for _ in range(LOOK_EVERY if load.rate is None else 1):
                due = time.perf_counter()
                if load.rate is not None:
                    due = begun + sent / load.rate
                    _wait(producer, due, stop)
                sent += _sent(producer, load.topic, payloads[sent % PAYLOADS], settled(due, watch.is_warm), stop)
            producer.poll(0)
        watch.stop()
        _drain(producer, stop)
        result.is_interrupted = bool(stop)


def _wait(producer: Any, due: float, stop: interrupts.Counted) -> None:
    while not stop and (ahead := due - time.perf_counter()) > 0:
        producer.poll(min(ahead, STEP_S))


def consume(bootstrap: str, load: Load, result: Result, bar: Bar) -> None:
    library = load_library()
    consumer = _consumer(bootstrap, "earliest")
    partitions = _assigned(consumer, load.topic, library.OFFSET_BEGINNING)
    left = sum(_end(consumer, partition) for partition in partitions)
    watch = Watch(load, result, bar)
    with interrupts.counted() as stop:
        while left > 0 and not stop and not watch.is_over():
            records = consumer.consume(5000, STEP_S)
            for record in records:
                if record.error() is None:
                    result.records += 1
                    result.bytes += len(record.value() or b"") + len(record.key() or b"")
            left -= len(records)
        watch.stop()
        consumer.close()
        result.is_interrupted = bool(stop)


def _consumer(bootstrap: str, reset: str) -> Any:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "headrace-bench",
        "enable.auto.commit": False,
        "log_level": LOG_LEVEL,
        "auto.offset.reset": reset,
    }
    return load_library().Consumer(settings)


def _assigned(consumer: Any, topic: str, offset: int) -> list[Any]:
    library = load_library()
    known = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    partitions = [library.TopicPartition(topic, index, offset) for index in known]
    consumer.assign(partitions)
    return partitions


def _end(consumer: Any, partition: Any) -> int:
    first, last = consumer.get_watermark_offsets(partition, timeout=10)
    return int(last) - int(first)


def there_and_back(bootstrap: str, load: Load, result: Result, bar: Bar) -> None:
    acknowledged = result.latencies["acknowledged"] = Latencies()
    end_to_end = result.latencies["end to end"] = Latencies()
    library = load_library()
    consumer = _consumer(bootstrap, "latest")
    for partition in _assigned(consumer, load.topic, library.OFFSET_END):
        _, last = consumer.get_watermark_offsets(partition, timeout=10)
        consumer.seek(library.TopicPartition(load.topic, partition.partition, last)) if last else None
    consumer.poll(0.5)
    padding, warm_from = load.payloads(), time.perf_counter() + load.warmup_s
    received, is_over = [0], threading.Event()

    def receive() -> None:
        while not is_over.is_set():
            record = consumer.poll(STEP_S)
            if record is None or record.error() is not None:
                continue
            now = time.perf_counter()
            (due,) = STAMP.unpack_from(record.value())
            received[0] += 1
            if due >= warm_from:
                end_to_end.add(now - due)
                result.records += 1
                result.bytes += len(record.value())

    def settled(due: float) -> Any:
        def done(error: Any, message: Any) -> None:
            if error is not None:
                result.fail(error)
            elif due >= warm_from:
                acknowledged.add(time.perf_counter() - due)

        return done

    receiving = threading.Thread(target=receive, daemon=True)
    with interrupts.counted() as stop, _sending(bootstrap, load) as producer:
        receiving.start()
        watch, sent, begun, rate = Watch(load, result, bar), 0, time.perf_counter(), load.rate or 100.0
        while not stop and not watch.is_over() and not result.failed:
            due = begun + sent / rate
            _wait(producer, due, stop)
            sent += _sent(producer, load.topic, STAMP.pack(due) + padding[sent % PAYLOADS][8:], settled(due), stop)
        watch.stop()
        _drain(producer, stop)
        deadline = time.perf_counter() + DRAIN_S
        while received[0] < sent - result.failed and stop.count < 2 and time.perf_counter() < deadline:
            time.sleep(0.01)
        is_over.set()
        receiving.join(DRAIN_S)
        consumer.close()
        result.is_interrupted = bool(stop)
