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


@given(st.integers(0, 2**32))
def test_a_reader_gets_every_record_once_and_in_order_from_where_it_was_told(seed: int) -> None:
    async def scenario() -> None:
        broker, chance = ScriptedBroker(), random.Random(seed)
        broker.is_fetch_broken = lambda: chance.random() < 0.2
        async with running(broker) as client:
            producer = client.producer(batch_bytes=chance.choice([60, 500]))
            await asyncio.gather(*(producer.send(TOPIC, b"%d" % number) for number in range(RECORDS)))
            consumer = client.consumer(auto_offset_reset="earliest", fetch_max_wait_ms=0, prefetch_bytes_max=500)
            consumer.assign([(TOPIC, 0)])
            expected, is_paused = 0, False
            for _ in range(60):
                match chance.randrange(6):
                    case 0:
                        expected = chance.randrange(RECORDS)
                        consumer.seek(TOPIC, 0, expected, chance.choice([-1, 1]))
                    case 1:
                        is_paused = not is_paused
                        (consumer.pause if is_paused else consumer.resume)((TOPIC, 0))
                    case 2:
                        broker.leader_epoch += 1
                    case 3 if not is_paused and expected < RECORDS:
                        assert (await anext(consumer)).offset == expected
                        expected += 1
                    case _:
                        got = await consumer.poll(chance.choice([1, 7, 500]), timeout_s=chance.choice([0, 0.05]))
                        assert [record.offset for record in got] == list(range(expected, expected + len(got)))
                        assert not (is_paused and got)
                        expected += len(got)
                assert await consumer.position(TOPIC, 0) == expected

    runner("sim")(scenario())
