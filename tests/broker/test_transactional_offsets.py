"""Offsets of groups that are committed in a transaction, on a running node."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.transactional import end, identity, init, ready, settled


async def commit_offset(
    peer: Peer,
    who: tuple[int, int],
    offset: int,
    *,
    version: int = 5,
    transactional_id: str = "x",
    group_id: str = "g",
    **more: Any,
) -> Error:
    kind = m.TxnOffsetCommitRequest
    request = kind(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=who[0],
        producer_epoch=who[1],
        topics=[
            kind.TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    kind.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
        **more,
    )
    while True:
        response = await ask(peer, request, version)
        error = Error.of(response.topics[0].partitions[0].error_code)
        if error is not Error.COORDINATOR_LOAD_IN_PROGRESS:
            return error


async def committed_offset(peer: Peer, *, stable: bool = False) -> tuple[int, Error]:
    kind = m.OffsetFetchRequest
    topics = [kind.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = kind.OffsetFetchRequestGroup(group_id="g", topics=topics)
    response = await ask(peer, kind(groups=[group], require_stable=stable), 8)
    (found,) = response.groups[0].topics[0].partitions
    return found.committed_offset, Error.of(found.error_code)


async def with_group(peer: Peer) -> tuple[int, int]:
    await create(peer, "t")
    while (await ask(peer, m.FindCoordinatorRequest(key="g", key_type=0), 3)).error_code:
        pass
    await ready(peer)
    return await identity(peer)


def test_offsets_count_when_their_transaction_is_committed() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            who = await with_group(peer)
            assert await commit_offset(peer, who, 7) == Error.NONE
            assert await committed_offset(peer) == (-1, Error.NONE)
            assert await committed_offset(peer, stable=True) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
            response = await end(peer, who, commits=True)
            await settled(peer)
            assert await committed_offset(peer, stable=True) == (7, Error.NONE)
            who = (response.producer_id, response.producer_epoch)
            assert await commit_offset(peer, who, 9) == Error.NONE
            await end(peer, who, commits=False)
            await settled(peer)
            assert await committed_offset(peer, stable=True) == (7, Error.NONE)

    run(check())


@pytest.mark.parametrize(("version", "told"), [(3, Error.INVALID_TXN_STATE), (4, Error.TRANSACTION_ABORTABLE)])
def test_before_version_2_the_group_must_have_been_added(version: int, told: Error) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            who = await with_group(peer)
            assert await commit_offset(peer, who, 7, version=version) == told
            request = m.AddOffsetsToTxnRequest(
                transactional_id="x", producer_id=who[0], producer_epoch=who[1], group_id="g"
            )
            assert (await ask(peer, request, 4)).error_code == Error.NONE
            assert await commit_offset(peer, who, 7, version=version) == Error.NONE
            await end(peer, who, commits=True, version=4)
            await settled(peer)
            assert await committed_offset(peer) == (7, Error.NONE)

    run(check())


def test_hazard_5_offsets_that_come_after_the_abort_leave_nothing_pending() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            who = await with_group(peer)
            request = m.AddOffsetsToTxnRequest(
                transactional_id="x", producer_id=who[0], producer_epoch=who[1], group_id="g"
            )
            assert (await ask(peer, request, 4)).error_code == Error.NONE
            await end(peer, who, commits=False, version=4)
            await settled(peer)
            assert await commit_offset(peer, who, 7, version=3) == Error.INVALID_TXN_STATE
            assert await committed_offset(peer, stable=True) == (-1, Error.NONE)

    run(check())


@pytest.mark.parametrize("verifies", ["true", "false"])
def test_a_zombie_can_not_commit_offsets_and_does_not_harm_the_group(verifies: str) -> None:
    async def check() -> None:
        async with running(transaction_partition_verification_enable=verifies) as node, connected(node) as peer:
            who = await with_group(peer)
            assert await commit_offset(peer, who, 7) == Error.NONE
            response = await end(peer, who, commits=True)
            await settled(peer)
            for version in (3, 5):
                assert await commit_offset(peer, who, 9, version=version) == Error.INVALID_PRODUCER_EPOCH
            now = (response.producer_id, response.producer_epoch)
            assert await commit_offset(peer, now, 8) == Error.NONE
            assert await commit_offset(peer, (-1, -1), 8, version=3) == Error.INVALID_PRODUCER_ID_MAPPING
            await end(peer, now, commits=True)
            await settled(peer)
            assert await committed_offset(peer, stable=True) == (8, Error.NONE)

    run(check())


def test_offsets_of_a_transaction_are_found_again_after_a_restart() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            who = await with_group(peer)
            assert await commit_offset(peer, who, 7) == Error.NONE
        async with running(disk, seed=1) as node, connected(node) as peer:
            await init(peer, "another")
            while (found := await committed_offset(peer, stable=True))[1] is Error.COORDINATOR_LOAD_IN_PROGRESS:
                pass
            assert found == (-1, Error.UNSTABLE_OFFSET_COMMIT)
            assert not (await end(peer, who, commits=True)).error_code
            await settled(peer)
            assert await committed_offset(peer, stable=True) == (7, Error.NONE)

    run(check())


def test_offsets_of_a_group_without_a_name_are_not_committed_in_a_transaction() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            who = await with_group(peer)
            for version in (3, 5):
                assert await commit_offset(peer, who, 7, version=version, group_id="") == Error.INVALID_GROUP_ID
            assert await settled(peer) == "Empty", "it was not added"

    run(check())
