"""Producers, coordinators and partitions at random: what is told holds, whatever is lost, repeated or too late."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.coordinator.transactions.states import NEXT, State
from headrace.coordinator.transactions.transaction import id_of, transaction_of
from tests.coordinator.transaction_script import Coordinator

NAMES = st.sampled_from(["a", "b"])
VERSIONS = st.sampled_from([0, 2])
PARTITIONS = st.sampled_from(["t-0", "t-1", "u-0"])


class Producer:
    """What one life of a producer believes. Lives of one name fence each other."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.identity = ""
        self.requests: list[tuple[str, ...]] = []
        """Whatever it ever sent, which may come again at any time."""


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(transaction_two_phase_commit_enable=True)
        self.lives: list[Producer] = []
        self.identities: set[tuple[str, str]] = set()
        self.decided: dict[tuple[str, int, int], bool] = {}
        self.states: dict[str, State] = {}
        self.checked = 0

    def _do(self, *words: str) -> str:
        return self.coordinator.do(*words)

    @rule(name=NAMES, version=VERSIONS)
    def start(self, name: str, version: int) -> None:
        producer = Producer(name, version)
        told = self._do("init", name)
        if ":" in told:
            assert (name, told) not in self.identities, "an identity was handed out twice (hazard 7)"
            self.identities.add((name, told))
            producer.identity = told
            self.lives.append(producer)

    @rule(data=st.data(), partition=PARTITIONS)
    def add(self, data: st.DataObject, partition: str) -> None:
        if self.lives:
            producer = data.draw(st.sampled_from(self.lives))
            self._send(producer, "add" if producer.version else "add1", producer.name, producer.identity, partition)

    @rule(data=st.data(), end=st.sampled_from(["commit", "abort"]), is_heard=st.booleans())
    def end(self, data: st.DataObject, end: str, is_heard: bool) -> None:
        if self.lives:
            producer = data.draw(st.sampled_from(self.lives))
            command = end if producer.version else end + "1"
            told = self._send(producer, command, producer.name, producer.identity)
            if ":" in told and is_heard:
                self.identities.add((producer.name, told))
                producer.identity = told

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """KIP-360."""
        if self.lives:
            producer = data.draw(st.sampled_from(self.lives))
            told = self._do("init", producer.name, f"expected={producer.identity}")
            if ":" in told:
                self.identities.add((producer.name, told))
                producer.identity = told

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A request comes a second time, from somewhere on the network."""
        producers = [producer for producer in self.lives if producer.requests]
        if producers:
            producer = data.draw(st.sampled_from(producers))
            self._do(*data.draw(st.sampled_from(producer.requests)))

    @rule(name=NAMES)
    def marked(self, name: str) -> None:
        if any(effect.transactional_id == name for effect in self.coordinator.runtime.effects):
            self._do("marked", name)

    @rule(pause_ms=st.sampled_from(["50", "100", "80000"]))
    def wait(self, pause_ms: str) -> None:
        self._do("wait", pause_ms)

    @rule()
    def fail_over(self) -> None:
        self._do("fail-over")

    def _send(self, producer: Producer, *request: str) -> str:
        producer.requests.append(request)
        return self._do(*request)

    @invariant()
    def markers_never_contradict_each_other(self) -> None:
        """What was decided with one identity is never decided otherwise, whoever coordinates."""
        for effect in self.coordinator.runtime.effects:
            if effect.transaction_version == 2:
                key = (effect.transactional_id, *effect.markers)
                assert self.decided.setdefault(key, effect.is_commit) == effect.is_commit

    @invariant()
    def the_log_says_what_the_shard_knows(self) -> None:
        again = Coordinator()
        again.runtime.log = self.coordinator.runtime.log
        for offset, (record, timestamp_ms, stamp) in enumerate(again.runtime.log):
            again.shard.replay(record.key, record.value, offset, timestamp_ms, stamp)
        assert again.shard.transactions == self.coordinator.shard.transactions

    @invariant()
    def states_follow_the_table(self) -> None:
        log = self.coordinator.runtime.log
        for record, _, _ in log[self.checked :]:
            name = id_of(record.key)
            assert name is not None
            if record.value is None:
                self.states.pop(name)
                continue
            before, state = self.states.get(name, State.EMPTY), transaction_of(name, record.value).state
            assert state in NEXT[before].values()
            self.states[name] = state
        self.checked = len(log)

    @invariant()
    def what_is_decided_has_markers_on_their_way(self) -> None:
        effects: list[Any] = self.coordinator.runtime.effects
        for name, transaction in self.coordinator.shard.transactions.items():
            if transaction.is_prepared:
                assert any(effect.transactional_id == name for effect in effects)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(stateful_step_count=40, deadline=None)


def test_a_repeated_end_of_the_protocol_before_may_end_a_later_transaction() -> None:
    """Why there is transaction version 2: the flaw is the protocol's, and Kafka has it too (hazard 6)."""
    Coordinator().play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        marked a
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
    """)
