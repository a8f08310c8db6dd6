"""Any requests in any order, with controllers that are deposed in the middle: what must hold, holds after each step."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.metadata.image import NO_LEADER, Image, Partition
from headrace.metadata.leadership import may_lead
from headrace.metadata.loader import Loader
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from headrace.protocol.state import decode_metadata_record, encode_metadata_record
from tests.metadata.deciding import Deciding
from tests.metadata.running import creation, directory, registration

BROKERS = st.integers(1, 3)
NAMES = st.sampled_from(["a", "b", "c"])


class AnyController(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Deciding().up(1, 2, 3).create("a", [[1, 2], [2, 3]]).create("b", [[3]])
        self.incarnations = dict.fromkeys((1, 2, 3), 1)
        self.waiting: list[tuple[int, Message]] = []
        """What will be answered, when the image has come so far."""
        self.producer_ids: list[int] = []
        self.seen: dict[tuple[bytes, int], Partition] = {}
        self.broker_epochs: dict[int, int] = {}

    def ask(self, request: Message) -> None:
        decision = self.cluster.decide(request)
        self.waiting.append((self.cluster.end_offset - 1, decision.response))
        self.answer()

    def answer(self) -> None:
        for offset, response in self.waiting:
            is_block = isinstance(response, m.AllocateProducerIdsResponse) and not response.error_code
            if is_block and offset <= self.cluster.image.offset:
                self.producer_ids.append(response.producer_id_start)  # type: ignore[attr-defined]
        self.waiting = [waiting for waiting in self.waiting if waiting[0] > self.cluster.image.offset]

    def decided(self) -> Image:
        assert self.cluster.controller.image is not None
        return self.cluster.controller.image

    def epoch_of(self, broker_id: int, is_stale: bool) -> int:
        broker = self.decided().brokers.get(broker_id)
        return -1 if broker is None else broker.epoch - is_stale

    @rule(broker_id=BROKERS, is_new=st.booleans(), directories=st.integers(1, 2))
    def register(self, broker_id: int, is_new: bool, directories: int) -> None:
        self.incarnations[broker_id] += is_new
        ids = [directory(broker_id, number) for number in range(directories)]
        self.ask(registration(broker_id, self.incarnations[broker_id], directories=ids))

    @rule(broker_id=BROKERS, with_controller=st.booleans())
    def restart(self, broker_id: int, with_controller: bool) -> None:
        """As it goes most of the time: its end is noticed, it registers, reads its registration and is unfenced."""
        if with_controller:  # both were one process, and nobody was there to notice
            self.depose(1)
        else:
            self.lose(broker_id)
        self.register(broker_id, True, 2)
        self.cluster.commit()
        self.beat(broker_id, False, True, "", -1)

    @rule(
        broker_id=BROKERS,
        is_stale=st.integers(0, 9).map(lambda n: n == 0),
        is_caught_up=st.integers(0, 9).map(lambda n: n < 9),
        wants=st.sampled_from(["", "", "", "", "fence", "stop"]),
        offline=st.integers(-8, 1),
    )
    def beat(self, broker_id: int, is_stale: bool, is_caught_up: bool, wants: str, offline: int) -> None:
        self.ask(
            m.BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.epoch_of(broker_id, is_stale),
                current_metadata_offset=self.decided().offset if is_caught_up else 0,
                want_fence=wants == "fence",
                want_shut_down=wants == "stop",
                offline_log_dirs=[directory(broker_id, offline)] if offline >= 0 else [],
            )
        )

    @rule(broker_id=BROKERS)
    def forget(self, broker_id: int) -> None:
        self.ask(m.UnregisterBrokerRequest(broker_id=broker_id))

    @rule(name=NAMES, replicas=st.lists(st.permutations([1, 2, 3]).map(lambda ids: ids[:2]), min_size=1, max_size=3))
    def create(self, name: str, replicas: list[list[int]]) -> None:
        self.ask(creation(name, replicas=replicas))

    @rule(name=NAMES, partitions=st.integers(1, 3))
    def create_anywhere(self, name: str, partitions: int) -> None:
        self.ask(creation(name, partitions))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.ask(m.DeleteTopicsRequest(topic_names=[name]))

    @rule(broker_id=BROKERS, is_stale=st.integers(0, 9).map(lambda n: n == 0))
    def allocate(self, broker_id: int, is_stale: bool) -> None:
        self.ask(m.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=self.epoch_of(broker_id, is_stale)))

    @rule(broker_id=BROKERS)
    def lose(self, broker_id: int) -> None:
        controller = self.cluster.controller
        self.cluster.append(controller.fence_now(broker_id, self.epoch_of(broker_id, False)))

    @rule(ms=st.integers(0, 9000))
    def wait(self, ms: int) -> None:
        self.cluster.now_ms += ms
        self.cluster.append(self.cluster.controller.tick(self.cluster.now_ms))

    @precondition(lambda self: self.cluster.uncommitted)
    @rule(batches=st.integers(1, 4))
    def commit(self, batches: int) -> None:
        self.cluster.commit(batches)
        self.answer()

    @rule(lost=st.integers(0, 4))
    def depose(self, lost: int) -> None:
        self.cluster.depose(lost)
        self.waiting.clear()  # they are told NOT_CONTROLLER, whatever became of it
        self.cluster.elect()

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def the_image_is_what_the_log_says_from_its_begin(self) -> None:
        again = Loader()
        records = [decode_metadata_record(encode_metadata_record(*record))[0] for record in self.cluster.committed]
        image = self.cluster.image
        assert again.apply(records, image.offset, image.epoch) == image

    @invariant()
    def hazard_7_no_producer_id_is_handed_out_twice(self) -> None:
        assert len(set(self.producer_ids)) == len(self.producer_ids)
        assert all(first + 1000 <= self.cluster.image.next_producer_id for first in self.producer_ids)

    @invariant()
    def a_leader_is_in_sync_and_may_lead(self) -> None:
        for image in (self.cluster.image, self.decided()):
            for topic in image.topics.values():
                for partition in topic.partitions.values():
                    assert partition.isr
                    assert set(partition.isr) <= set(partition.replicas)
                    if partition.leader != NO_LEADER:
                        assert partition.leader in partition.isr
                        assert may_lead(image, partition, partition.leader)

    @invariant()
    def nobody_is_without_a_leader_who_could_have_one(self) -> None:
        image = self.decided()
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                if partition.leader == NO_LEADER:
                    assert not any(may_lead(image, partition, broker_id) for broker_id in partition.isr)

    @invariant()
    def epochs_never_go_back_and_an_epoch_has_one_leader(self) -> None:
        for topic in self.cluster.image.topics.values():
            for index, partition in topic.partitions.items():
                before = self.seen.get((topic.id, index), partition)
                assert partition.leader_epoch >= before.leader_epoch
                assert partition.partition_epoch >= before.partition_epoch
                if partition.leader_epoch == before.leader_epoch:
                    assert partition.leader == before.leader
                self.seen[topic.id, index] = partition
        for broker in self.cluster.image.brokers.values():
            assert broker.epoch >= self.broker_epochs.get(broker.id, -1)
            self.broker_epochs[broker.id] = broker.epoch


TestAnyController = AnyController.TestCase
