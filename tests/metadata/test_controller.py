"""What the controller decides, request by request."""

from __future__ import annotations

import pytest

from headrace.errors import Error, Refused
from headrace.metadata.features import METADATA_VERSION, SUPPORTED
from headrace.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from headrace.protocol import messages as m
from tests.metadata.deciding import Deciding
from tests.metadata.running import creation, directory, registration

# -------------------------------------------------------------------------------------------------------- registration


def test_the_epoch_of_a_broker_is_the_offset_of_its_record_and_it_begins_fenced() -> None:
    controller = Deciding()
    offset = controller.end_offset
    assert controller.ask(registration()).broker_epoch == offset
    broker = controller.image.brokers[1]
    assert (broker.epoch, broker.is_fenced, broker.directories) == (offset, True, (directory(1),))
    assert broker.features == SUPPORTED


def test_the_same_incarnation_registers_again_without_a_new_epoch_or_a_record() -> None:
    controller = Deciding().up(1)
    epoch = controller.image.brokers[1].epoch
    again = controller.decide(registration())
    assert again.records == []
    assert again.response == m.BrokerRegistrationResponse(broker_epoch=epoch)
    controller.ask(registration(rack="r"))
    broker = controller.image.brokers[1]
    assert (broker.rack, broker.epoch, broker.is_fenced) == ("r", epoch, False)


def test_another_incarnation_of_a_live_broker_is_refused() -> None:
    controller = Deciding().up(1)
    assert controller.ask(registration(incarnation=2)).error_code == Error.DUPLICATE_BROKER_REGISTRATION
    controller.now_ms += 8999
    assert controller.ask(registration(incarnation=2)).error_code == Error.DUPLICATE_BROKER_REGISTRATION
    controller.now_ms += 1
    assert controller.ask(registration(incarnation=2)).error_code == 0


def test_a_broker_that_this_controller_never_heard_of_is_not_taken_for_alive() -> None:
    controller = Deciding().up(1)
    controller.depose()
    controller.elect()
    assert controller.ask(registration(incarnation=2)).error_code == 0
    assert controller.beat(1, broker_epoch=0).error_code == Error.STALE_BROKER_EPOCH


def test_a_fenced_broker_that_beats_is_alive() -> None:
    controller = Deciding()
    controller.ask(registration())
    assert controller.ask(registration(incarnation=2)).error_code == Error.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (registration(cluster_id="other"), Error.INCONSISTENT_CLUSTER_ID),
        (registration(directories=[]), Error.INVALID_REGISTRATION),
        (registration(directories=[UNASSIGNED_DIRECTORY]), Error.INVALID_REGISTRATION),
        (registration(directories=[LOST_DIRECTORY]), Error.INVALID_REGISTRATION),
        (registration(directories=[directory(1), directory(1)]), Error.INVALID_REGISTRATION),
        (registration(directories=[directory(2)]), Error.INVALID_REGISTRATION),
        (registration(-2), Error.INVALID_REGISTRATION),
    ],
    ids=str,
)
def test_a_registration_that_can_not_be_is_refused(request_: m.BrokerRegistrationRequest, error: Error) -> None:
    controller = Deciding().up(2)
    decision = controller.decide(request_)
    assert decision.records == []
    assert decision.response == m.BrokerRegistrationResponse(error_code=error)


def test_a_broker_of_zookeeper_is_refused() -> None:
    request = registration()
    request.is_migrating_zk_broker = True
    assert Deciding().ask(request).error_code == Error.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("levels", [[], [(METADATA_VERSION, 7, 28)], [(METADATA_VERSION, 30, 31)], [("x", 0, 99)]])
def test_a_broker_that_does_not_know_the_level_of_a_feature_is_refused(levels: list[tuple[str, int, int]]) -> None:
    request = registration()
    kind = m.BrokerRegistrationRequest.Feature
    request.features = [kind(name=n, min_supported_version=low, max_supported_version=high) for n, low, high in levels]
    assert Deciding().ask(request).error_code == Error.UNSUPPORTED_VERSION


def test_a_broker_that_is_forgotten_leads_nothing() -> None:
    controller = Deciding().up(1, 2).create("t", [[1, 2]])
    assert controller.ask(m.UnregisterBrokerRequest(broker_id=1)).error_code == 0
    assert list(controller.image.brokers) == [2]
    assert controller.state() == (2, (2,), 1)
    assert controller.ask(m.UnregisterBrokerRequest(broker_id=1)).error_code == Error.BROKER_ID_NOT_REGISTERED


# ------------------------------------------------------------------------------------------ who leads when brokers move


def test_a_restart_begins_new_leader_epochs_and_the_last_in_sync_replica_stays_one() -> None:
    controller = Deciding().up(1).create("t", [[1]])
    assert controller.state() == (1, (1,), 0)
    controller.depose()
    controller.elect()
    controller.ask(registration(incarnation=2))
    assert controller.state() == (-1, (1,), 1)
    controller.beat(1)
    assert controller.state() == (1, (1,), 2)


def test_another_replica_leads_in_the_place_of_a_broker_that_came_back() -> None:
    controller = Deciding().up(1, 2).create("t", [[1, 2], [2, 1]])
    controller.append(controller.controller.fence_now(1, controller.image.brokers[1].epoch))
    controller.commit()
    assert controller.state(index=0) == (2, (2,), 1)
    assert controller.state(index=1) == (2, (2,), 0)
    controller.up(1, incarnation=2)
    assert controller.state(index=0) == (2, (2,), 1)  # it is not in sync until it has caught up


def test_of_two_brokers_that_go_one_after_the_other_the_last_one_alone_may_lead_again() -> None:
    controller = Deciding().up(1, 2).create("t", [[1, 2]])
    for broker_id in (1, 2):
        controller.beat(broker_id, want_fence=True)
    assert controller.state() == (-1, (2,), 2)
    controller.beat(1)
    assert controller.state() == (-1, (2,), 2)
    controller.beat(2)
    assert controller.state() == (2, (2,), 3)


def test_a_broker_that_is_known_to_be_gone_is_fenced_at_once_and_registers_again_at_once() -> None:
    controller = Deciding().up(1, 2).create("t", [[1, 2]])
    epoch = controller.image.brokers[1].epoch
    controller.append(controller.controller.fence_now(1, epoch))
    assert controller.ask(registration(1, 2)).error_code == 0
    assert controller.controller.fence_now(1, epoch) == []
    assert controller.controller.fence_now(9, epoch) == []


def test_brokers_whose_sessions_ended_are_fenced_together() -> None:
    controller = Deciding().up(1, 2, 3).create("t", [[1, 2, 3]])
    controller.now_ms += 5000
    controller.beat(3)
    assert controller.controller.deadline_ms() == controller.now_ms + 4000
    controller.tick(4000)
    assert [broker.is_fenced for broker in controller.image.brokers.values()] == [True, True, False]
    assert controller.state() == (3, (3,), 2)
    assert controller.controller.tick(controller.now_ms) == []
    assert controller.controller.deadline_ms() == controller.now_ms + 5000


def test_a_new_controller_gives_each_broker_a_whole_session() -> None:
    controller = Deciding().up(1)
    controller.now_ms += 8000
    controller.depose()
    controller.elect()
    controller.tick(8999)
    assert not controller.image.brokers[1].is_fenced
    controller.tick(1)
    assert controller.image.brokers[1].is_fenced


# ---------------------------------------------------------------------------------------------------------- heartbeats


def test_a_broker_is_unfenced_when_it_has_read_its_own_registration() -> None:
    controller = Deciding()
    epoch = controller.ask(registration()).broker_epoch
    early = controller.beat(1, current_metadata_offset=epoch - 1)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    later = controller.beat(1, current_metadata_offset=epoch)
    assert (later.is_caught_up, later.is_fenced, later.should_shut_down) == (True, False, False)
    assert not controller.image.brokers[1].is_fenced


def test_a_broker_that_wants_it_stays_fenced() -> None:
    controller = Deciding()
    controller.ask(registration())
    assert controller.beat(1, want_fence=True).is_fenced


@pytest.mark.parametrize("broker_id", [1, 7])
def test_hazard_4_an_old_incarnation_is_told_that_its_epoch_is_over(broker_id: int) -> None:
    controller = Deciding().up(1)
    stale = {"broker_id": broker_id, "broker_epoch": controller.image.brokers[1].epoch - 1}
    beat = controller.ask(m.BrokerHeartbeatRequest(**stale))  # type: ignore[arg-type]
    ids = controller.ask(m.AllocateProducerIdsRequest(**stale))
    assert beat.error_code == ids.error_code == Error.STALE_BROKER_EPOCH
    assert beat.is_fenced


def test_a_broker_hands_over_what_it_leads_before_it_may_stop() -> None:
    controller = Deciding().up(1, 2).create("t", [[1, 2]])
    leaving = controller.beat(1, want_shut_down=True)
    assert (leaving.is_fenced, leaving.should_shut_down) == (False, False)
    assert controller.state() == (2, (2,), 1)
    assert not controller.beat(1, want_shut_down=True).should_shut_down  # broker 2 does not know yet
    controller.beat(2)
    gone = controller.beat(1, want_shut_down=True)
    assert (gone.is_fenced, gone.should_shut_down) == (True, True)
    assert controller.image.brokers[1].is_fenced
    assert controller.ask(registration(1, 2)).error_code == 0


def test_a_broker_that_is_alone_may_stop_at_once() -> None:
    controller = Deciding().up(1).create("t", [[1]])
    assert controller.beat(1, want_shut_down=True).should_shut_down
    assert controller.state() == (-1, (1,), 1)


def test_new_partitions_are_not_led_by_a_broker_that_shuts_down() -> None:
    controller = Deciding().up(1, 2)
    controller.create("t", [[1, 2]])
    controller.beat(1, want_shut_down=True)
    controller.create("u", [[1, 2]])
    assert controller.state("u") == (2, (2,), 0)


def test_what_is_in_a_failed_directory_is_led_by_others_and_comes_back_with_it() -> None:
    controller = Deciding()
    directories = [directory(1), directory(1, 1)]
    controller.ask(registration(1, directories=directories))
    controller.beat(1)
    controller.up(2).create("t", [[1, 2]]).create("u", [[1]])
    for topic in controller.image.topics.values():
        placed = m.PartitionChangeRecord(
            partition_id=0,
            topic_id=topic.id,
            directories=[directories[1], *(directory(2) for _ in topic.partitions[0].replicas[1:])],
        )
        controller.append([(placed, 1)])
    controller.commit()
    controller.beat(1, offline_log_dirs=[directories[1]])
    assert controller.state("t") == (2, (2,), 1)
    assert controller.state("u") == (-1, (1,), 1)
    assert controller.image.brokers[1].directories == (directories[0],)
    assert (
        controller.decide(
            m.BrokerHeartbeatRequest(
                broker_id=1, broker_epoch=controller.image.brokers[1].epoch, offline_log_dirs=[directories[1]]
            )
        ).records
        == []
    )
    controller.now_ms += 9000
    controller.ask(registration(1, 2, directories=directories))
    controller.beat(1)
    assert controller.state("u") == (1, (1,), 2)


# ------------------------------------------------------------------------------------------------------- producer ids


def test_hazard_7_blocks_of_producer_ids_never_overlap_even_before_they_are_committed() -> None:
    controller = Deciding().up(1)
    request = m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=controller.image.brokers[1].epoch)
    given = [controller.decide(request).response for _ in range(3)]
    assert [(g.producer_id_start, g.producer_id_len) for g in given] == [  # type: ignore[attr-defined]
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    controller.commit(2)
    controller.depose()  # the third was never committed, so nobody was told
    controller.elect()
    assert controller.ask(request).producer_id_start == 2000


def test_producer_ids_end() -> None:
    controller = Deciding().up(1)
    controller.append([(m.ProducerIdsRecord(next_producer_id=2**63 - 1000), 0)])
    request = m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=controller.image.brokers[1].epoch)
    assert controller.ask(request).error_code == Error.UNKNOWN_SERVER_ERROR


# -------------------------------------------------------------------------------------------------- the rest of it


def test_a_decision_reckons_with_those_that_are_not_committed_and_a_deposed_controller_forgets_them() -> None:
    controller = Deciding().up(1)
    assert controller.decide(creation("t")).response.topics[0].error_code == 0  # type: ignore[attr-defined]
    refused = controller.decide(creation("t")).response
    assert refused.topics[0].error_code == Error.TOPIC_ALREADY_EXISTS  # type: ignore[attr-defined]
    controller.depose()
    with pytest.raises(Refused) as inactive:
        controller.controller.tick(0)
    assert inactive.value.error is Error.NOT_CONTROLLER
    controller.elect()
    assert controller.image.topic("t") is None
    assert controller.ask(creation("t")).topics[0].error_code == 0


def test_a_controller_that_is_not_active_says_so_in_every_answer() -> None:
    controller = Deciding()
    controller.depose()
    requests = [
        registration(),
        m.BrokerHeartbeatRequest(),
        m.UnregisterBrokerRequest(),
        m.ControllerRegistrationRequest(),
        m.AllocateProducerIdsRequest(),
        creation("t"),
        m.DeleteTopicsRequest(topic_names=["t"], topics=[m.DeleteTopicsRequest.DeleteTopicState(name="u")]),
        m.CreatePartitionsRequest(topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)]),
    ]
    for request in requests:
        decision = controller.controller.decide(request, 0, 0)
        assert decision.records == []
        assert "error_code=NOT_CONTROLLER" in repr(decision.response), request


def test_what_the_controller_does_not_serve_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        Deciding().decide(m.MetadataRequest())
    assert refused.value.error is Error.UNSUPPORTED_VERSION


def test_a_controller_that_is_registered_already_writes_nothing() -> None:
    controller = Deciding()
    kind = m.ControllerRegistrationRequest
    request = kind(
        controller_id=1,
        incarnation_id=b"i" * 16,
        listeners=[kind.Listener(name="CONTROLLER", host="h", port=9093)],
        features=[
            kind.Feature(name=name, min_supported_version=least, max_supported_version=most)
            for name, (least, most) in SUPPORTED.items()
        ],
    )
    controller.ask(request)
    assert controller.image.controllers[1].endpoints[0].host == "h"
    assert controller.decide(request).records == []
    request.features = []
    assert controller.ask(request).error_code == Error.UNSUPPORTED_VERSION


def test_topics_are_deleted_and_grow() -> None:
    controller = Deciding().up(1).create("t", [[1]])
    kind = m.CreatePartitionsRequest
    grown = controller.ask(kind(topics=[kind.CreatePartitionsTopic(name="t", count=3, assignments=None)]))
    assert grown.results[0].error_code == 0
    assert controller.state(index=2) == (1, (1,), 0)
    assert controller.ask(m.DeleteTopicsRequest(topic_names=["t"])).responses[0].error_code == 0
    assert controller.image.topics == {}
