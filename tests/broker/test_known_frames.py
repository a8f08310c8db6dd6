"""Heartbeats that come again byte for byte are decoded once, and answered as any other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker import loggers, request_log
from headrace.broker.known_frames import FRAME_BYTES_MAX, FRAMES_MAX, KnownFrames
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.takes import noted_takes
from tests.broker.test_groups import beat, find, join, stable_member

LOG = "broker.request_log"
KIND = m.ConsumerGroupHeartbeatRequest


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    yield
    loggers.set_levels({LOG: None})


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each heartbeat on a connection that has sent one: whether it was known."""
    return noted_takes(monkeypatch, KnownFrames)


async def enter(peer: Peer, group: str, member_id: str = "m") -> int:
    """Joins by the new protocol, and says once that it has what it got; returns the epoch."""
    body = KIND(
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    told = await ask(peer, body, 1)
    assert not told.error_code, told
    epoch: int = told.member_epoch
    await beat_new(peer, group, epoch, member_id)
    return epoch


async def beat_new(peer: Peer, group: str, epoch: int, member_id: str = "m") -> Any:
    return await ask(peer, KIND(group_id=group, member_id=member_id, member_epoch=epoch), 1)


def test_a_member_of_the_new_protocol_is_told_all_that_is_new(taken: list[bool]) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer, connected(node) as other:
            await create(peer, "t", 2)
            await find(peer, "g")
            epoch = await enter(peer, "g")
            for _ in range(3):
                told = await beat_new(peer, "g", epoch)
                assert (told.error_code, told.member_epoch, told.assignment) == (0, epoch, None)
            assert taken[-2:] == [True, True]
            await enter(other, "g", "n")
            told = await beat_new(peer, "g", epoch)
            assert taken[-1], "the request is the same, and what is answered is not"
            assert told.assignment is not None, "it has to give up a partition"
            assert (await beat_new(other, "g", 7, "n")).error_code == Error.FENCED_MEMBER_EPOCH
            assert (await beat_new(peer, "g", -1)).error_code == 0, "it leaves"
            assert (await beat_new(peer, "g", epoch)).error_code == Error.UNKNOWN_MEMBER_ID

    run(check())


def test_a_classic_member_is_told_of_a_rebalance(taken: list[bool]) -> None:
    async def check() -> None:
        async with (
            running(offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="0") as node,
            connected(node) as peer,
            connected(node) as other,
        ):
            await find(peer, "g")
            member = await stable_member(peer, "g")
            for _ in range(3):
                assert await beat(peer, "g", member) is Error.NONE
            assert taken == [True, True]
            joining = asyncio.create_task(join(other, "g"))
            while (told := await beat(peer, "g", member)) is Error.NONE:
                pass
            assert told is Error.REBALANCE_IN_PROGRESS
            assert taken[-1], "the request is the same, and what is answered is not"
            joining.cancel()

    run(check())


def test_members_that_share_a_connection_are_told_apart(taken: list[bool]) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await create(peer, "t", 1)
            await find(peer, "g")
            groups = [f"g{number}" for number in range(FRAMES_MAX + 1)]
            epochs = {group: await enter(peer, group) for group in groups}
            del taken[:]
            for _ in range(3):
                for group in groups[:-1]:
                    told = await beat_new(peer, group, epochs[group], "m")
                    assert (told.error_code, told.member_epoch) == (0, epochs[group])
            assert taken.count(True) == 2 * FRAMES_MAX
            del taken[:]
            for group in groups:  # one more than are kept
                assert not (await beat_new(peer, group, epochs[group])).error_code
            assert taken.count(True) == FRAMES_MAX
            assert (await beat_new(peer, groups[0], epochs[groups[0]] + 1)).error_code == Error.FENCED_MEMBER_EPOCH

    run(check())


def test_what_is_long_is_decoded_each_time(taken: list[bool]) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await create(peer, "t", 1)
            await find(peer, "g")
            group = "g" * FRAME_BYTES_MAX
            epoch = await enter(peer, group)
            for _ in range(3):
                assert not (await beat_new(peer, group, epoch)).error_code
            assert not any(taken)

    run(check())


def test_they_are_told_in_the_log_of_requests(taken: list[bool], caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await create(peer, "t", 1)
            await find(peer, "g")
            epoch = await enter(peer, "g")
            await beat_new(peer, "g", epoch)
            loggers.set_levels({LOG: "DEBUG"})
            caplog.clear()
            await beat_new(peer, "g", epoch)
            told = [record.getMessage() for record in caplog.records if record.name == request_log.__name__]
            assert [line.split(" of ")[0] for line in told] == ["ConsumerGroupHeartbeat v1"]
            assert told[0].endswith("no error")
            assert taken[-1]

    run(check())
