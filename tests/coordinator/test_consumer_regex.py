"""What regular expressions match, as topics come and go; and that nobody pays for an abusive one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.groups.consumer import regex
from headrace.coordinator.groups.consumer.member import Subscription
from headrace.coordinator.groups.consumer.records import member_metadata
from headrace.coordinator.groups.consumer.regex import JOURNAL_MAX, STEP_NAMES_MAX, Resolver
from headrace.errors import Error, Refused
from tests.coordinator.consumer_script import ConsumerScript


def names(*topics: str) -> dict[str, bytes]:
    return dict.fromkeys(topics, b"")


def resolved(resolver: Resolver, regex: str, steps_max: int = 10_000) -> tuple[str, ...]:
    for _ in range(steps_max):
        found = resolver.topics(regex)
        if found is not None:
            return found
    raise AssertionError(f"{regex} took more than {steps_max} steps")


def test_an_expression_matches_whole_names() -> None:
    resolver = Resolver()
    resolver.reset(names("orders", "orders-eu", "my-orders"))
    assert resolver.topics("orders.*") == ("orders", "orders-eu")
    assert resolver.topics("orders") == ("orders",)
    assert resolver.topics("(?i)ORDERS|x") == ("orders",)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3))))
def test_it_follows_the_topics(changes: list[tuple[str, int]]) -> None:
    resolver, there = Resolver(), names("a", "c")
    resolver.reset(there)
    for name, ask in changes:
        if name in there:
            there = {other: id_ for other, id_ in there.items() if other != name}
            resolver.change(there, [], [name])
        else:
            there = {**there, name: b""}
            resolver.change(there, [name], [])
        if ask:
            assert resolver.topics("[abc]") == tuple(sorted(set("abc") & there.keys()))
    assert resolver.topics("[abc]") == tuple(sorted(set("abc") & there.keys()))


def test_it_follows_more_changes_than_are_kept() -> None:
    resolver = Resolver()
    resolver.reset(names())
    assert resolver.topics("t1.*") == ()
    there = names(*(f"t{number}" for number in range(JOURNAL_MAX * 2)))
    resolver.change(there, list(there), [])
    assert resolved(resolver, "t1.*") == tuple(sorted(name for name in there if name.startswith("t1")))


def test_many_topics_are_matched_in_steps_and_what_comes_in_between_counts() -> None:
    resolver = Resolver()
    there = names(*(f"t{number}" for number in range(STEP_NAMES_MAX * 3)))
    resolver.reset(there)
    assert resolver.topics("t.*9") is None
    without = {name: id_ for name, id_ in there.items() if name != "t9"}
    resolver.change({**without, "tx9": b""}, ["tx9"], ["t9"])
    found = resolved(resolver, "t.*9")
    assert found == tuple(sorted([name for name in without if name.endswith("9")] + ["tx9"]))


@pytest.mark.parametrize("regex", ["(", "*", "a{1001}", "(a{1000}){1000}", "x" * 5000, r"\p{Nothing}", "(?!x)", r"\1"])
def test_what_is_no_expression_or_too_large_is_refused(regex: str) -> None:
    with pytest.raises(Refused) as refused:
        Resolver().topics(regex)
    assert refused.value.error == Error.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("regex", ["(a*)*b", "(x+x+)+y", "[ab]*a[ab]{600}", ".*" * 200 + "b"])
def test_an_abusive_expression_is_walked_in_short_steps(regex: str) -> None:
    resolver = Resolver()
    resolver.reset(names(*(f"{number:04}" + "ab" * 120 for number in range(300))))
    resolved(resolver, regex)


def test_a_member_hears_of_what_took_many_steps_with_its_next_heartbeat() -> None:
    script = ConsumerScript()
    for number in range(STEP_NAMES_MAX + 10):
        script.runtime.change(script._cluster.topic(f"other-{number}", 1), script._cluster.image)
    script.command("topic t 1")
    assert script.command("join a regex=t") == ["a: epoch 1, shall own nothing"]
    script.command("wait 1")
    assert script.command("beat a") == ["a: epoch 2, shall own t0"]
    script.command("fail-over")
    script.command("wait 1")
    assert script.command("beat a") == ["a: epoch 2"]


def test_an_expression_that_another_coordinator_took_hurts_nobody_else() -> None:
    script = ConsumerScript()
    script.command("topic t 1")
    record = member_metadata("g", "java", Subscription(regex="(", rebalance_timeout_ms=1))
    script.runtime.shard.replay(record.key, record.value, 0, 0, None)
    assert script.command("join a") == ["a: epoch 1, shall own t0"]


def test_what_is_kept_of_ever_new_expressions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "KEPT_BYTES_MAX", 1 << 20)
    resolver = Resolver()
    resolver.reset(names(*(f"t{number}" for number in range(500))))
    for number in range(30):
        large = rf"t{number}|(?:\pL\pN){{8}}"
        assert resolved(resolver, large) == (f"t{number}",)
    room = (1 << 20) + regex.KEPT_LISTS_MIN * 500 * 8
    assert 0 < sum(entry.pattern.programsize for entry in resolver._entries.values()) * 20 <= room
    for number in range(1000):
        assert len(resolved(resolver, f"t.*|{number}")) == 500
    assert 0 < sum(len(entry.topics) for entry in resolver._entries.values()) * 8 <= room
    assert resolver._size_bytes == sum(entry.size_bytes for entry in resolver._entries.values())
    resolver.change(names("t1"), [], [f"t{number}" for number in range(500) if number != 1])
    assert resolved(resolver, "t.*|0") == ("t1",), "one that was dropped is made again"
    assert resolved(resolver, "t.*|999") == ("t1",)
