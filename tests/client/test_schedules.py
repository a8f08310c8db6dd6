"""Random schedules of faults: whatever a producer says of a record must be true of the log."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.client import NotSent, Uncertain
from headrace.errors import Error, Refused
from headrace.protocol.batch import Batch
from headrace.protocol.records import records_of
from tests.client.scripted import TOPIC, ScriptedBroker, running
from tests.net.loops import runner

RECORDS = 60
FAULTS: list[Error | str] = [
    "lost",
    "dropped",
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.NOT_ENOUGH_REPLICAS,
    Error.INVALID_RECORD,
    Error.INVALID_PRODUCER_EPOCH,
    Error.REQUEST_TIMED_OUT,
]


class Chaos:
    """Draws a fault for each batch that comes."""

    def __init__(self, broker: ScriptedBroker, chance: random.Random, trouble: float) -> None:
        self.broker, self.chance, self.trouble = broker, chance, trouble

    def __call__(self, batch: Batch) -> Error | str | None:
        if self.chance.random() > self.trouble:
            return None
        kind = self.chance.randrange(9)
        if kind == 0:
            if batch.base_sequence == 0:
                return None  # to a broker that forgets this one, every try is the first
            self.broker.sequences.clear()
            self.broker.kept.clear()
            return Error.UNKNOWN_PRODUCER_ID
        if kind == 1:
            return Error.MESSAGE_TOO_LARGE if batch.record_count > 1 else None
        return FAULTS[kind - 2]


@given(st.integers(0, 2**32), st.sampled_from([0.05, 0.3, 0.6]), st.sampled_from([0.3, 30.0]))
def test_acknowledged_once_refused_never_uncertain_at_most_once_and_all_in_order(
    seed: int, trouble: float, delivery_timeout_s: float
) -> None:
    async def scenario() -> None:
        broker, chance = ScriptedBroker(), random.Random(seed)
        chaos = Chaos(broker, chance, trouble)
        broker.faults = [chaos] * 100_000
        async with running(broker) as client:
            producer = client.producer(
                delivery_timeout_s=delivery_timeout_s, batch_bytes=chance.choice([60, 200, 4000])
            )
            futures: list[asyncio.Future[Any]] = []
            for number in range(RECORDS):
                futures.append(producer.send_soon(TOPIC, b"%d" % number))
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.choice([0, 0.001, 0.02]))
            await producer.flush()
            log = {
                record.offset: int(record.value or b"")
                for batch in broker.log
                for record in records_of(Batch(memoryview(batch)), 1 << 20).decode()
            }
            values = list(log.values())
            for number, future in enumerate(futures):
                error = future.exception()
                if error is None:
                    assert log[future.result().offset] == number
                    assert values.count(number) == 1
                elif isinstance(error, Uncertain):
                    assert values.count(number) <= 1
                else:
                    assert isinstance(error, Refused | NotSent)
                    assert number not in values
            assert values == sorted(values)

    runner("sim")(scenario())
