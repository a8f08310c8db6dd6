"""Encode and decode of messages against kio and kafka-python: `python -m bench.protocol.codec`.

All three hold the same message: theirs are decoded from our bytes, and encode to the same bytes again. The rounds are
interleaved, and the best round of each counts. kio's decoder is native; ours and kafka-python's are Python.
"""

import importlib
import io
import re
from collections.abc import Callable
from time import perf_counter
from typing import Any

from bench.protocol.samples import SAMPLES
from headrace.protocol.codec import decode, encode, encode_bytes
from headrace.protocol.message import Message

ROUNDS = 15
SECONDS_A_ROUND = 0.02


def kio_of(message: Message, version: int, data: bytes) -> tuple[Callable[[], object], Callable[[], object]]:
    from kio.serial import entity_reader, entity_writer

    name = re.sub(r"(Request|Response)$", "", message.shape.name)
    kind = "request" if message.shape.name.endswith("Request") else "response"
    module = importlib.import_module(f"kio.schema.{re.sub(r'(?<!^)(?=[A-Z])', '_', name).lower()}.v{version}.{kind}")
    entity = getattr(module, message.shape.name)
    read, write = entity_reader(entity), entity_writer(entity)
    theirs, _ = read(data, 0)

    def encode_theirs() -> bytes:
        out = io.BytesIO()
        write(out, theirs)
        return out.getvalue()

    assert encode_theirs() == data
    return encode_theirs, lambda: read(data, 0)


def kafka_python_of(message: Message, version: int, data: bytes) -> tuple[Callable[[], object], Callable[[], object]]:
    their_class: Any = None
    for module in ("producer", "consumer", "metadata", "admin"):
        package = importlib.import_module(f"kafka.protocol.{module}")
        their_class = getattr(package, message.shape.name, their_class)
    theirs = their_class.decode(data, version=version)
    theirs._header = None
    assert bytes(theirs.encode(version=version)) == data
    return lambda: theirs.encode(version=version), lambda: their_class.decode(data, version=version)


def best(functions: list[Callable[[], object]]) -> list[float]:
    """Microseconds a call, the best of interleaved rounds."""
    counts = []
    for function in functions:
        start, count = perf_counter(), 0
        while perf_counter() - start < SECONDS_A_ROUND:
            function()
            count += 1
        counts.append(max(1, count))
    found = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for index, function in enumerate(functions):
            start = perf_counter()
            for _ in range(counts[index]):
                function()
            found[index] = min(found[index], (perf_counter() - start) / counts[index] * 1e6)
    return found


def measure(message: Message, version: int) -> tuple[list[float], list[float]]:
    """Microseconds to encode and to decode: ours, kio's, kafka-python's."""
    data = encode_bytes(message, version)
    cls = type(message)
    kio_encode, kio_decode = kio_of(message, version, data)
    kafka_encode, kafka_decode = kafka_python_of(message, version, data)
    encoded = best([lambda: encode(message, version), kio_encode, kafka_encode])
    return encoded, best([lambda: decode(cls, version, data), kio_decode, kafka_decode])


def main() -> None:
    print("µs a message, and how many times as fast as the others")
    print(f"{'':36} {'encode':>9} {'kio':>7} {'kafka-python':>13}   {'decode':>9} {'kio':>7} {'kafka-python':>13}")
    for name, (message, version) in SAMPLES.items():
        cells = [
            f"{ours:9.2f} {kio / ours:7.2f} {kafka / ours:13.2f}" for ours, kio, kafka in measure(message, version)
        ]
        print(f"{name:36} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
