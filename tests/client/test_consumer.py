"""What a consumer does: positions, resets, and logs that were cut."""

from __future__ import annotations

import pytest

from headrace.client import LogTruncated, NoOffset
from headrace.client.partitioner import murmur2
from tests.client.scripted import TOPIC, ScriptedBroker, running
from tests.net.loops import Run, on_every_loop

PARTITION = (TOPIC, 0)


@on_every_loop
def test_records_come_in_order_from_where_it_is_told(run: Run) -> None:
    async def scenario() -> None:
        async with running(ScriptedBroker()) as client:
            producer, consumer = client.producer(), client.consumer(auto_offset_reset="earliest")
            for number in range(5):
                await producer.send(TOPIC, b"%d" % number)
            consumer.assign([PARTITION])
            assert [(await anext(consumer)).offset for _ in range(5)] == [0, 1, 2, 3, 4]
            assert await consumer.position(*PARTITION) == 5
            consumer.seek(*PARTITION, 3)
            assert [record.value for record in await consumer.poll(10)] == [b"3", b"4"]
            consumer.seek_to_end()
            assert await consumer.poll(timeout_s=0.05) == []
            consumer.seek_to_beginning()
            assert (await anext(consumer)).offset == 0
            assert await consumer.end_offsets([PARTITION]) == {PARTITION: 5}

    run(scenario())


@on_every_loop
def test_without_a_policy_an_unknown_position_is_an_error(run: Run) -> None:
    async def scenario() -> None:
        async with running(ScriptedBroker()) as client:
            consumer = client.consumer(auto_offset_reset="none")
            consumer.assign([PARTITION])
            with pytest.raises(NoOffset, match="seek, or set auto_offset_reset"):
                await consumer.poll()
            consumer.seek(*PARTITION, 100)
            with pytest.raises(NoOffset, match="Offset 100 is not in the log"):
                await consumer.poll()

    run(scenario())


@on_every_loop
@pytest.mark.parametrize("policy", ["none", "earliest"])
def test_hazard_2_a_log_that_was_cut_behind_the_reader_is_found_out(run: Run, policy: str) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer, consumer = client.producer(), client.consumer(auto_offset_reset=policy)
            for number in range(5):
                await producer.send(TOPIC, b"%d" % number)
            consumer.assign([PARTITION])
            consumer.seek(*PARTITION, 0)
            assert len([await anext(consumer) for _ in range(5)]) == 5
            # Power is lost: two records are gone, others take their offsets under a new epoch.
            del broker.log[3:]
            broker.end, broker.truncated_at, broker.leader_epoch = 3, 3, 2
            if policy == "none":
                with pytest.raises(LogTruncated) as cut:
                    await consumer.poll()
                assert (cut.value.offset, cut.value.divergent_offset) == (5, 3)
            else:
                other = client.producer()
                await other.send(TOPIC, b"new")
                assert [(record.offset, record.value) for record in await consumer.poll()] == [(3, b"new")]

    run(scenario())


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"", 275646681)],
)
def test_keys_are_hashed_as_by_java(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
