"""Transactions on a running node, request by request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.transactional import add, describe, end, fetch, identity, init, produce, read, settled


async def prepared(peer: Peer, topic: str = "t", partitions: int = 1, **configs: str) -> tuple[int, int]:
    """A topic, and a producer that has begun a transaction with one record in it."""
    await create(peer, topic, partitions, **configs)
    who = await identity(peer)
    assert await produce(peer, who, b"a", version=12) == Error.NONE
    return who


def test_a_transaction_of_version_2_adds_its_partitions_by_what_is_produced() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            who = await prepared(peer)
            state = await describe(peer)
            assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", *who)
            assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0])]
            assert await produce(peer, who, b"b", 1, version=12) == Error.NONE
            assert await read(peer) == []
            response = await end(peer, who, commits=True)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (0, who[0], who[1] + 1)
            assert await settled(peer) == "CompleteCommit"
            assert await read(peer) == [b"a", b"b"]
            who = (response.producer_id, response.producer_epoch)
            assert await produce(peer, who, b"c", version=12) == Error.NONE
            await end(peer, who, commits=False)
            assert await settled(peer) == "CompleteAbort"
            assert await read(peer) == [b"a", b"b"]

    run(check())


@pytest.mark.parametrize("version", [0, 4])
def test_an_impossible_time_out_is_told_before_there_is_a_coordinator(version: int) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            for timeout_ms in (0, -1, 900_001):
                wanted = m.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=timeout_ms)
                response = await ask(peer, wanted, version)
                assert response.error_code == Error.INVALID_TRANSACTION_TIMEOUT
                assert (response.producer_id, response.producer_epoch) == (-1, -1)
            wanted = m.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=900_000)
            assert (await ask(peer, wanted, version)).error_code == Error.COORDINATOR_NOT_AVAILABLE

    run(check())


@pytest.mark.parametrize(("version", "told"), [(9, Error.INVALID_TXN_STATE), (11, Error.TRANSACTION_ABORTABLE)])
def test_before_version_2_a_partition_must_have_been_added(version: int, told: Error) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t", 2)
            who = await identity(peer)
            assert await produce(peer, who, b"a", version=version) == told
            assert await add(peer, who, ("t", 1)) == [Error.NONE]
            assert await produce(peer, who, b"a", version=version) == told
            assert await add(peer, who, ("t", 0)) == [Error.NONE]
            assert await produce(peer, who, b"a", version=version) == Error.NONE
            await end(peer, who, commits=True, version=4)
            assert await settled(peer) == "CompleteCommit"
            assert await read(peer) == [b"a"]

    run(check())


@pytest.mark.parametrize("enabled", ["true", "false"])
@pytest.mark.parametrize("version", [4, 5])
def test_a_coordinator_that_is_asked_to_verify_does_so_whatever_its_own_partitions_want(
    enabled: str, version: int
) -> None:
    """transaction.partition.verification.enable is about those who ask. As Kafka 4.3 answers."""
    kind = m.AddPartitionsToTxnRequest

    async def verified(peer: Peer, who: tuple[int, int], *indexes: int) -> list[Error]:
        wanted = kind.AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=who[0],
            producer_epoch=who[1],
            verify_only=True,
            topics=[kind.AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
        )
        (result,) = (await ask(peer, kind(transactions=[wanted]), version)).results_by_transaction
        return [Error.of(one.partition_error_code) for one in result.topic_results[0].results_by_partition]

    async def check() -> None:
        async with running(transaction_partition_verification_enable=enabled) as node, connected(node) as peer:
            await create(peer, "t", 3)
            who = await identity(peer)
            assert await verified(peer, who, 0, 1) == [Error.TRANSACTION_ABORTABLE] * 2
            await add(peer, who, ("t", 0))
            assert await verified(peer, who, 0, 1) == [Error.NONE, Error.TRANSACTION_ABORTABLE]
            assert await verified(peer, (who[0], who[1] + 1), 0) == [Error.PRODUCER_FENCED]
            assert await verified(peer, (who[0] + 1, 0), 0) == [Error.INVALID_PRODUCER_ID_MAPPING]
            assert await verified(peer, who, 0, 7) == [Error.OPERATION_NOT_ATTEMPTED, Error.UNKNOWN_TOPIC_OR_PARTITION]

    run(check())


def test_what_can_not_be_added_is_told_and_nothing_else_is() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            who = await identity(peer)
            errors = await add(peer, who, ("t", 0), ("t", 9), ("none", 0), ("__transaction_state", 0))
            assert errors == [
                Error.OPERATION_NOT_ATTEMPTED,
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                Error.TOPIC_AUTHORIZATION_FAILED,
            ]
            assert await settled(peer) == "Empty"

    run(check())


@pytest.mark.parametrize(("version", "told"), [(1, Error.INVALID_PRODUCER_EPOCH), (2, Error.PRODUCER_FENCED)])
def test_a_zombie_is_told_in_the_words_of_its_version(version: int, told: Error) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            zombie = await identity(peer)
            await identity(peer)
            assert await add(peer, zombie, ("t", 0), version=version) == [told]
            assert (await end(peer, zombie, commits=True, version=version)).error_code == told
            request = m.AddOffsetsToTxnRequest(
                transactional_id="x", producer_id=zombie[0], producer_epoch=zombie[1], group_id="g"
            )
            assert (await ask(peer, request, version)).error_code == told
            more: dict[str, Any] = {"producer_id": zombie[0], "producer_epoch": 77}
            old = await init(peer, version=version + 2, **more)
            assert old.error_code == told

    run(check())


def test_hazard_5_a_produce_that_comes_after_the_abort_leaves_no_transaction_hanging() -> None:
    async def late(**settings: Any) -> tuple[Error, int]:
        """With one epoch for both transactions, as before version 2."""
        async with running(**settings) as node, connected(node) as peer:
            await create(peer, "t")
            who = await identity(peer)
            await add(peer, who, ("t", 0))
            await end(peer, who, commits=False, version=4)
            assert await settled(peer) == "CompleteAbort"
            error = await produce(peer, who, b"late", version=9)
            described = await ask(
                peer,
                m.DescribeProducersRequest(
                    topics=[m.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
                ),
                0,
            )
            (producer,) = described.topics[0].partitions[0].active_producers
            return error, producer.current_txn_start_offset

    async def check() -> None:
        assert await late() == (Error.INVALID_TXN_STATE, -1)
        # And so it was before KIP-890: nobody would ever end what began at offset 1.
        assert await late(transaction_partition_verification_enable="false") == (Error.NONE, 1)

    run(check())


def test_one_transaction_follows_another_at_once() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            who = await identity(peer)
            for round_number in range(20):
                assert await produce(peer, who, b"%d" % round_number, version=12) == Error.NONE
                response = await end(peer, who, commits=True)
                assert response.error_code == Error.NONE
                who = (response.producer_id, response.producer_epoch)
                response = await end(peer, who, commits=False)
                assert response.error_code == Error.NONE
                who = (response.producer_id, response.producer_epoch)
            await settled(peer)
            assert await read(peer) == [b"%d" % round_number for round_number in range(20)]

    run(check())


def test_hazard_6_an_end_that_comes_late_ends_no_later_transaction() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            first = await prepared(peer)
            response = await end(peer, first, commits=True)
            second = (response.producer_id, response.producer_epoch)
            await settled(peer)
            assert await produce(peer, second, b"b", version=12) == Error.NONE
            assert (await end(peer, first, commits=True)).error_code == Error.PRODUCER_FENCED
            assert await settled(peer) == "Ongoing"
            await end(peer, second, commits=False)
            await settled(peer)
            assert await read(peer) == [b"a"]

    run(check())


def test_hazard_7_no_producer_id_is_handed_out_twice_over_crashes() -> None:
    async def check() -> None:
        disk, seen = FaultyDisk(), []
        for life in range(3):
            async with running(disk, seed=life) as node, connected(node) as peer:
                for number in range(3):
                    seen.append((await identity(peer, f"{life}-{number}"))[0])
                    response = await ask(peer, m.InitProducerIdRequest(transactional_id=None), 4)
                    seen.append(response.producer_id)
                assert (await identity(peer, "0-0"))[0] == seen[0], "a transactional id keeps its producer id"
        assert len(set(seen)) == len(seen)

    run(check())


def test_what_is_decided_survives_a_restart_and_is_completed() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            who = await prepared(peer)
            await end(peer, who, commits=True)
        async with running(disk, seed=1) as node, connected(node) as peer:
            await init(peer, "another")
            assert await settled(peer) == "CompleteCommit"
            assert await read(peer) == [b"a"]
            response = await end(peer, who, commits=True)
            assert (response.error_code, response.producer_epoch) == (0, who[1] + 1), "it is asked again"

    run(check())


def test_an_open_transaction_goes_on_after_a_restart() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            who = await prepared(peer)
        async with running(disk, seed=1) as node, connected(node) as peer:
            await init(peer, "another")
            assert await produce(peer, who, b"b", 1, version=12) == Error.NONE
            assert not (await end(peer, who, commits=True)).error_code
            await settled(peer)
            assert await read(peer) == [b"a", b"b"]

    run(check())


def test_markers_of_a_deleted_topic_are_not_waited_for() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            who = await prepared(peer)
            await create(peer, "u")
            assert await produce(peer, who, b"b", topic="u", version=12) == Error.NONE
            await ask(peer, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
            assert not (await end(peer, who, commits=True)).error_code
            assert await settled(peer) == "CompleteCommit"
            assert await read(peer, "u") == [b"b"]

    run(check())


def test_a_transaction_past_its_time_is_aborted() -> None:
    async def check() -> None:
        settings: dict[str, Any] = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "20"}
        async with running(**settings) as node, connected(node) as peer:
            await create(peer, "t")
            who = await identity(peer, transaction_timeout_ms=50)
            assert await produce(peer, who, b"a", version=12) == Error.NONE
            while await settled(peer) == "Ongoing":
                pass
            assert await settled(peer) == "CompleteAbort"
            assert await produce(peer, who, b"b", 1, version=12) == Error.INVALID_PRODUCER_EPOCH
            assert await read(peer) == []

    run(check())


def test_without_the_feature_the_protocol_before_is_followed() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            update = m.UpdateFeaturesRequest(
                timeout_ms=5000,
                feature_updates=[
                    m.UpdateFeaturesRequest.FeatureUpdateKey(
                        feature="transaction.version", max_version_level=0, upgrade_type=3
                    )
                ],
            )
            assert not (await ask(peer, update, 1)).error_code
            await create(peer, "t")
            who = await identity(peer)
            await add(peer, who, ("t", 0))
            assert await produce(peer, who, b"a", version=9) == Error.NONE
            await end(peer, who, commits=True, version=4)
            assert await settled(peer) == "CompleteCommit"
            assert (await describe(peer)).producer_epoch == who[1]
            assert await read(peer) == [b"a"]

    run(check())


def test_verification_is_switched_off_while_the_node_runs() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            who = await identity(peer)
            assert await produce(peer, who, b"a", version=9) == Error.INVALID_TXN_STATE
            kind = m.IncrementalAlterConfigsRequest
            setting = kind.AlterableConfig(name="transaction.partition.verification.enable", value="false")
            request = kind(resources=[kind.AlterConfigsResource(resource_type=4, resource_name="", configs=[setting])])
            assert not (await ask(peer, request, 1)).responses[0].error_code
            assert await produce(peer, who, b"a", version=9) == Error.NONE

    run(check())


def test_two_phase_commit_is_offered_only_where_it_is_allowed() -> None:
    async def offered(**settings: Any) -> int:
        async with running(**settings) as node, connected(node) as peer:
            request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
            response = await ask(peer, request, 3)
            found = [api.max_version for api in response.api_keys if api.api_key == m.InitProducerIdRequest.api_key]
            return int(found[0])

    async def check() -> None:
        assert await offered() == 5
        assert await offered(transaction_two_phase_commit_enable="true") == 6

    run(check())


@pytest.mark.parametrize("commits", [True, False])
def test_two_phase_commit_a_producer_that_starts_again_ends_what_it_had_prepared(commits: bool) -> None:
    async def check() -> None:
        disk = FaultyDisk()
        settings: dict[str, Any] = {"transaction_two_phase_commit_enable": "true"}
        async with running(disk, **settings) as node, connected(node) as peer:
            await create(peer, "t")
            first = await init(peer, version=6, enable_2pc=True, transaction_timeout_ms=-1)
            who = (first.producer_id, first.producer_epoch)
            assert await produce(peer, who, b"a", version=12) == Error.NONE
        async with running(disk, seed=1, **settings) as node, connected(node) as peer:
            again = await init(peer, version=6, enable_2pc=True, keep_prepared_txn=True)
            assert (again.ongoing_txn_producer_id, again.ongoing_txn_producer_epoch) == who
            now = (again.producer_id, again.producer_epoch)
            assert now > who
            assert await settled(peer) == "Ongoing"
            assert await produce(peer, who, b"zombie", 1, version=12) == Error.NONE, "not decided yet, and its own"
            assert not (await end(peer, now, commits=commits)).error_code
            await settled(peer)
            assert await produce(peer, who, b"zombie", 2, version=12) == Error.INVALID_PRODUCER_EPOCH
            assert await read(peer) == ([b"a", b"zombie"] if commits else [])

    run(check())


# ------------------------------------------------------------------------------------------------- reading what counts


def test_a_reader_of_committed_records_is_told_what_was_aborted_and_where_to_stop() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            who = await prepared(peer)
            found = await fetch(peer)
            assert (found.last_stable_offset, found.high_watermark) == (0, 1)
            response = await end(peer, who, commits=False)
            await settled(peer)
            found = await fetch(peer)
            assert (found.last_stable_offset, found.high_watermark) == (2, 2)
            assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions] == [(who[0], 0)]
            assert (await fetch(peer, offset=2)).aborted_transactions == []
            kind = m.ListOffsetsRequest
            second = (response.producer_id, response.producer_epoch)
            assert await produce(peer, second, b"b", version=12) == Error.NONE
            for level, end_offset in ((0, 3), (1, 2)):
                request = kind(
                    replica_id=-1,
                    isolation_level=level,
                    topics=[
                        kind.ListOffsetsTopic(
                            name="t", partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                        )
                    ],
                )
                answer = await ask(peer, request, 7)
                assert answer.topics[0].partitions[0].offset == end_offset

    run(check())


def test_a_fetch_session_goes_on_when_a_transaction_ends() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            who = await prepared(peer)
            kind = m.FetchRequest
            partition = kind.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            settings: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1}
            first = await ask(
                peer,
                kind(
                    max_wait_ms=0,
                    session_epoch=0,
                    topics=[kind.FetchTopic(topic="t", partitions=[partition])],
                    **settings,
                ),
                11,
            )
            assert first.responses[0].partitions[0].last_stable_offset == 0
            async with connected(node) as other:
                waiting = ask(
                    other,
                    kind(max_wait_ms=20_000, session_id=first.session_id, session_epoch=1, topics=[], **settings),
                    11,
                )
                task = asyncio.ensure_future(waiting)
                await end(peer, who, commits=True)
                second = await task
            (found,) = second.responses[0].partitions
            assert found.last_stable_offset == 2
            assert len(found.records) > 0

    run(check())


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_hazard_11_what_was_aborted_stays_so_over_segments_compaction_and_a_restart(policy: str) -> None:
    async def check() -> None:
        disk = FaultyDisk()
        settings: dict[str, Any] = {"log_cleaner_backoff_ms": "50"}
        async with running(disk, **settings) as node, connected(node) as peer:
            await create(
                peer, "t", cleanup_policy=policy, segment_bytes="1048576", segment_ms="1", min_cleanable_dirty_ratio="0"
            )
            open_one = await identity(peer, "open")
            who = await identity(peer)
            for number in range(8):
                value = b"%s %d" % (b"aborted" if number % 2 else b"committed", number)
                assert await produce(peer, who, value, version=12, key=b"%d" % (number % 3)) == Error.NONE
                response = await end(peer, who, commits=not number % 2)
                await settled(peer)
                who = (response.producer_id, response.producer_epoch)
                await asyncio.sleep(0.003)  # segment_ms is over: only what is in closed segments is compacted
            if policy == "compact":
                # Keys 0, 1 and 2 were last committed by 6, 4 and 2: the rest goes, and with it what was aborted.
                expected = [b"committed 2", b"committed 4", b"committed 6"]
                while len(await read(peer)) > len(expected):
                    pass
            else:
                expected = [b"committed %d" % number for number in (0, 2, 4, 6)]
            assert await read(peer) == expected
            # An open transaction is not compacted away, and is aborted over a restart all the same.
            assert await produce(peer, open_one, b"open", version=12, transactional_id="open") == Error.NONE
            assert await read(peer) == expected
        async with running(disk, seed=1, **settings) as node, connected(node) as peer:
            await init(peer, "another")
            assert await read(peer) == expected
            assert not (await end(peer, open_one, commits=False, transactional_id="open")).error_code
            assert await settled(peer, "open") == "CompleteAbort"
            assert await read(peer) == expected

    run(check())
