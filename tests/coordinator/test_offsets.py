"""Offsets of groups, in scripts."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.offsets import records
from headrace.coordinator.offsets.expiry import LOOKED_AT_A_STEP
from headrace.coordinator.offsets.store import OffsetStore
from headrace.errors import ProtocolError
from headrace.protocol import messages as m
from headrace.protocol import state
from headrace.protocol.shape import Kind
from tests.coordinator.offset_scripts import Script

MINUTE_MS = 60_000


def test_who_never_joined_commits_to_a_group_that_need_not_exist() -> None:
    Script().play(
        """
        fetch g t0 t1                     -> t0=-1 t1=-1
        commit g t0=5 t1=6                -> OK
        commit g t0=7                     -> OK
        fetch g t0 t1 t2                  -> t0=7 t1=6 t2=-1
        fetch g                           -> t0=7 t1=6
        fetch other                       ->
        restart
        fetch g                           -> t0=7 t1=6
        """
    )


def test_what_is_not_there_is_refused_by_itself() -> None:
    Script().play(
        """
        commit g t0=5 u0=1 t9=2           -> NONE UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION
        commit g t0=6 u0=1 version=10     -> NONE UNKNOWN_TOPIC_ID
        fetch g                           -> t0=6
        fetch g t0 u0                     -> t0=6 u0=-1
        """
    )


def test_hazard_13_a_fenced_member_does_not_commit() -> None:
    """The group says who may, and what it refuses changes nothing."""
    script = Script()
    script.play(
        """
        fill g
        commit g t0=5 member=m epoch=3    -> OK
        commit g t0=6 member=m epoch=2    -> STALE_MEMBER_EPOCH
        commit g t0=6 member=x epoch=3    -> UNKNOWN_MEMBER_ID
        commit g t0=6                     -> UNKNOWN_MEMBER_ID
        txn 7 g t0=6 member=m epoch=2     -> ILLEGAL_GENERATION     # whose clients know no epochs
        fetch g t0 stable                 -> t0=5
        fetch g t0 member=m epoch=2       -> STALE_MEMBER_EPOCH
        fetch g t0 member=m epoch=3       -> t0=5
        commit new t0=1 member=m epoch=3  -> GROUP_ID_NOT_FOUND
        commit new t0=1 member=m epoch=3 version=8 -> ILLEGAL_GENERATION
        txn 7 new t0=1 member=m epoch=3   -> ILLEGAL_GENERATION
        """
    )
    assert script.groups["g"].alive_ms == script.run.now_ms, "a commit is a sign of life"


def test_offsets_of_a_transaction_count_from_its_commit_on() -> None:
    Script().play(
        """
        commit g t0=5                     -> OK
        txn 7 g t0=9 t1=9                 -> OK
        fetch g t0 t1                     -> t0=5 t1=-1
        fetch g t0 t1 t2 stable           -> t0=UNSTABLE_OFFSET_COMMIT t1=UNSTABLE_OFFSET_COMMIT t2=-1
        restart
        fetch g t0 stable                 -> t0=UNSTABLE_OFFSET_COMMIT
        end 7 commit
        fetch g t0 t1 stable              -> t0=9 t1=9
        txn 7 g t0=10                     -> OK
        end 7 abort
        fetch g t0 t1 stable              -> t0=9 t1=9
        restart
        fetch g t0 t1 stable              -> t0=9 t1=9
        """
    )


def test_a_later_commit_is_not_undone_by_the_end_of_an_earlier_transaction() -> None:
    Script().play(
        """
        txn 7 g t0=1                      -> OK
        commit g t0=2                     -> OK
        end 7 commit
        fetch g t0                        -> t0=2
        restart
        fetch g t0                        -> t0=2
        """
    )


def test_a_group_of_open_transactions_alone_goes_when_they_are_aborted() -> None:
    script = Script()
    script.play("txn 7 g t0=1 -> OK")
    assert list(script.shard.context.groups) == ["g"]
    script.play("end 7 abort")
    assert list(script.shard.context.groups) == []


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_group_goes_with_its_last_offset_though_a_transaction_is_open_on_it(end: str) -> None:
    """Which may be for long, when it is prepared; what it commits later makes the group again."""
    script = Script()
    script.play("commit g t0=5 -> OK\ntxn 7 g t1=1 t2=2 -> OK\ndelete g t0 t1 -> OK")
    assert list(script.shard.context.groups) == ["g"]
    script.play("delete g t2 -> OK")
    assert list(script.shard.context.groups) == []
    script.play("restart\ndelete g t2 -> GROUP_ID_NOT_FOUND\ntxn 7 g t3=4 -> OK")
    assert list(script.shard.context.groups) == ["g"]
    script.play(f"end 7 {end}")
    assert list(script.shard.context.groups) == (["g"] if end == "commit" else [])


def test_offsets_are_deleted_where_nobody_reads() -> None:
    Script().play(
        """
        delete g t0                       -> GROUP_ID_NOT_FOUND
        make u
        commit g t0=5 t1=6 u0=7           -> OK
        txn 7 g t2=8                      -> OK
        delete g t0 t3 t9                 -> NONE NONE UNKNOWN_TOPIC_OR_PARTITION
        delete g t2                       -> OK                       # what a transaction would commit goes too
        end 7 commit
        fetch g                           -> t1=6 u0=7
        fill g u
        delete g t1 u0                    -> NONE GROUP_SUBSCRIBED_TO_TOPIC
        fetch g                           -> u0=7
        """
    )


def test_offsets_go_with_their_topic_also_those_of_open_transactions() -> None:
    script = Script()
    script.play(
        """
        make u
        commit g t0=5 u0=7                -> OK
        commit h u0=7                     -> OK
        txn 7 g u1=8                      -> OK
        drop u
        end 7 commit
        fetch g                           -> t0=5
        fetch h                           ->
        make u
        fetch g u0 u1                     -> u0=-1 u1=-1
        """
    )
    assert list(script.shard.context.groups) == ["g"]


def test_hazard_9_offsets_of_a_topic_that_was_deleted_while_nobody_coordinated_go_at_the_load() -> None:
    script = Script()
    script.play("commit g t0=5 -> OK")
    live, script.run.shard = script.run.shard, Script().run.shard  # it hears of nothing meanwhile
    script.play("drop t\nmake t")
    script.run.shard = live
    script.play(
        """
        fetch g t0                        -> t0=5   # of the old topic: nobody told it yet
        restart
        fetch g t0                        -> t0=-1
        """
    )
    assert script.offsets.store.count == 0


def test_an_offset_is_kept_for_its_retention_after_its_commit_where_nobody_ever_joined() -> None:
    script = Script(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS)
    script.play(
        f"""
        commit g t0=5                     -> OK
        wait {5 * MINUTE_MS}
        commit g t1=6                     -> OK
        wait {6 * MINUTE_MS}
        fetch g                           -> t1=6
        wait {5 * MINUTE_MS}
        fetch g                           ->
        """
    )
    assert list(script.shard.context.groups) == []


def test_offsets_of_a_group_with_members_are_kept_and_expire_after_it_lost_the_last() -> None:
    script = Script(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS)
    script.play(
        f"""
        make u
        fill g t
        commit g t0=5 u0=6 member=m epoch=3 -> OK
        wait {100 * MINUTE_MS}
        fetch g                           -> t0=5          # nobody subscribes to u any more
        empty g
        wait {9 * MINUTE_MS}
        fetch g                           -> t0=5
        wait {3 * MINUTE_MS}
        fetch g                           ->
        """
    )
    group_records = [record.key for record, _, _ in script.run.log if record.key.startswith(b"\x7f")]
    assert group_records, "a group without members and offsets is deleted"


def test_an_expiry_of_its_own_is_what_an_old_client_asked_for() -> None:
    Script(offsets_retention_check_interval_ms=MINUTE_MS).play(
        f"""
        commit g t0=5 retention={3 * MINUTE_MS} version=2 -> OK
        commit g t1=5 version=2           -> OK
        restart
        wait {2 * MINUTE_MS}
        fetch g                           -> t0=5 t1=5
        wait {2 * MINUTE_MS}
        fetch g                           -> t1=5
        """
    )


def test_an_old_client_may_ask_for_an_offset_to_be_kept_for_ever() -> None:
    Script(offsets_retention_check_interval_ms=24 * 60 * MINUTE_MS).play(
        f"""
        commit g t0=5 retention={2**63 - 1} version=4 -> OK
        wait {365 * 24 * 60 * MINUTE_MS}
        fetch g                           -> t0=5
        """
    )


def test_what_an_open_transaction_is_about_does_not_expire() -> None:
    Script(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS).play(
        f"""
        commit g t0=5 t1=5                -> OK
        txn 7 g t0=6                      -> OK
        wait {3 * MINUTE_MS}
        fetch g                           -> t0=5
        end 7 abort
        wait {MINUTE_MS}
        fetch g                           ->
        """
    )


def test_many_offsets_are_looked_at_in_steps() -> None:
    script = Script(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS)
    for number in range(600):
        script.play(f"commit g{number} t0=1 t1=1 t2=1 -> OK")
    script.run.now_ms += 2 * MINUTE_MS
    due = script.run.timers.due(script.run.now_ms)
    assert due is not None
    outcome = due[1](script.run.now_ms)
    assert 0 < len(outcome.records) <= 1003
    script.run._take(outcome)
    script.run.wait(1)
    assert script.offsets.store.count == 0


def test_no_step_of_expiry_looks_at_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS)
    for number in range(3 * LOOKED_AT_A_STEP):
        script.play(f"commit g{number} t0=1 -> OK")
    asked: list[str] = []
    of_group = OffsetStore.of_group

    def counted(store: OffsetStore, group_id: str) -> Any:
        asked.append(group_id)
        return of_group(store, group_id)

    monkeypatch.setattr(OffsetStore, "of_group", counted)
    script.run.now_ms += 2 * MINUTE_MS
    while (due := script.run.timers.due(script.run.now_ms)) is not None:
        asked.clear()
        outcome = due[1](script.run.now_ms)
        assert len(asked) <= LOOKED_AT_A_STEP
        script.run._take(outcome)
    assert script.offsets.store.count == 0


def test_metadata_may_be_as_long_as_the_setting_says() -> None:
    Script(offset_metadata_max_bytes=3).play(
        """
        commit g t0=1 metadata=four       -> OFFSET_METADATA_TOO_LARGE
        commit g t0=1 metadata=thr        -> OK
        txn 7 g t0=1 metadata=four        -> OFFSET_METADATA_TOO_LARGE
        """
    )


# --- records ----------------------------------------------------------------------------------------------------------


@given(st.text(max_size=20), st.text(max_size=20), st.integers(-(2**31), 2**31 - 1))
def test_keys_are_what_the_general_codec_reads_and_writes(group: str, topic: str, partition: int) -> None:
    key = records.encode_key(group, topic, partition)
    message = m.OffsetCommitKey(group=group, topic=topic, partition=partition)
    assert key == state.encode_key(message)
    assert records.decode_key(key) == (group, topic, partition)


@given(
    offset=st.integers(-(2**63), 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=200),
    timestamp_ms=st.integers(-1, 2**62),
    topic_id=st.sampled_from([bytes(16), b"i" * 16]),
)
def test_values_are_what_the_general_codec_reads_and_writes(
    offset: int, epoch: int, metadata: str, timestamp_ms: int, topic_id: bytes
) -> None:
    value = records.encode_commit(offset, epoch, metadata, timestamp_ms, -1, topic_id)
    message = m.OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=timestamp_ms, topic_id=topic_id
    )
    assert value == state.encode_value(message, 4)
    expected = records.Committed(offset, epoch, metadata, timestamp_ms, -1, topic_id, 77)
    assert records.decode_commit(1, value, 77) == expected
    for version in range(4):
        old = records.decode_commit(1, state.encode_value(message, version), 77)
        assert (old.offset, old.metadata, old.commit_timestamp_ms) == (offset, metadata, timestamp_ms)
    expiring = records.decode_commit(1, records.encode_commit(offset, epoch, metadata, timestamp_ms, 5, topic_id), 77)
    assert (expiring.offset, expiring.expire_timestamp_ms) == (offset, 5)
    assert state.decode_value(Kind.GROUP, m.OffsetCommitKey(), value) == message


def test_offsets_as_kafka_wrote_them_before_0_9_are_read() -> None:
    value = m.LegacyOffsetCommitValue(offset=5, metadata="x", commit_timestamp=7)
    found = records.decode_commit(0, state.encode_value(value, 0), 3)
    assert found == records.Committed(5, -1, "x", 7, -1, bytes(16), 3)


@given(st.binary(max_size=60), st.booleans())
def test_records_that_nobody_wrote_are_told(data: bytes, is_v4: bool) -> None:
    with suppress(ProtocolError, UnicodeDecodeError):
        records.decode_commit(1, (b"\x00\x04" if is_v4 else b"") + data, 0)
    with suppress(ProtocolError, UnicodeDecodeError):
        records.decode_key(b"\x00\x01" + data)


# --- at random --------------------------------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False))
def test_a_load_gives_the_offsets_that_were_lived(chance: random.Random) -> None:
    script = Script(offsets_retention_minutes=5, offsets_retention_check_interval_ms=MINUTE_MS)
    for _ in range(chance.randrange(60)):
        group, place, producer = chance.choice("gh"), f"t{chance.randrange(4)}", chance.choice("78")
        line = chance.choice(
            [
                f"commit {group} {place}={chance.randrange(99)}",
                f"txn {producer} {group} {place}={chance.randrange(99)}",
                f"end {producer} {chance.choice(['commit', 'abort'])}",
                f"delete {group} {place}",
                f"wait {chance.choice([1000, MINUTE_MS, 3 * MINUTE_MS])}",
            ]
        )
        script.do(line.split())
    lived = script.offsets.store
    groups = sorted(script.shard.context.groups)
    script.do(["restart"])
    loaded = script.offsets.store
    for group in "gh":
        assert loaded.of_group(group) == lived.of_group(group)
        assert sorted(loaded.pending_of_group(group)) == sorted(lived.pending_of_group(group))
    assert (loaded.count, sorted(script.shard.context.groups)) == (lived.count, groups)


@pytest.mark.parametrize("version", [9, 10])
def test_all_offsets_are_named_as_the_version_names_topics(version: int) -> None:
    Script().play(f"commit g t0=1 version={version} -> OK\nfetch g version={version} -> t0=1")
