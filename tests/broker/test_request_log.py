"""The log of requests: a line for each, while it is switched on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker import loggers, request_log
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from tests.broker.config_requests import LOGGER, SET
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.test_configs import change

NAME = "broker.request_log"


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    yield
    loggers.set_levels({NAME: None})


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.name == request_log.__name__]
    caplog.clear()
    return found


def produce(topic: str, acks: int = -1) -> m.ProduceRequest:
    kind = m.ProduceRequest
    data = kind.PartitionProduceData(index=0, records=memoryview(build([(b"k", b"v", (), 1)])))
    return kind(acks=acks, timeout_ms=1000, topic_data=[kind.TopicProduceData(name=topic, partition_data=[data])])


def test_each_request_is_told_while_its_level_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            handlers = [listener.handler for listener in node._listeners.all]  # type: ignore[union-attr]
            await create(peer, "t")
            assert lines(caplog) == []
            await change(peer, LOGGER, "1", (NAME, SET, "DEBUG"))
            lines(caplog)
            await ask(peer, produce("t"), 9)
            await ask(peer, produce("nowhere"), 9)
            await ask(peer, m.MetadataRequest(topics=None), 12)
            done, refused, metadata = lines(caplog)
            assert done.startswith("Produce v9 of client 'a-test' at 127.0.0.1:")
            assert " on PLAINTEXT: " in done
            assert " ms, " in done
            assert done.endswith(", no error")
            assert refused.endswith(", UNKNOWN_TOPIC_OR_PARTITION")
            assert metadata.startswith("Metadata v12 of ")
            await change(peer, LOGGER, "1", (NAME, SET, "INFO"))
            lines(caplog)
            await ask(peer, produce("t"), 9)
            assert lines(caplog) == []
            assert [listener.handler for listener in node._listeners.all] == handlers  # type: ignore[union-attr]

    run(check())


def test_errors_are_counted_and_what_gets_no_reply_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        loggers.set_levels({NAME: "DEBUG"})
        async with running(offsets_topic_num_partitions="1") as node, connected(node) as peer:
            await create(peer, "t")
            await ask(peer, m.FindCoordinatorRequest(key="g"), 3)
            kind = m.OffsetCommitRequest
            topic = kind.OffsetCommitRequestTopic(
                name="none", partitions=[kind.OffsetCommitRequestPartition(partition_index=n) for n in range(3)]
            )
            lines(caplog)
            await ask(peer, kind(group_id="g", generation_id_or_member_epoch=-1, topics=[topic]), 8)
            (line,) = lines(caplog)
            assert line.startswith("OffsetCommit v8 ")
            assert line.endswith(", 3 times UNKNOWN_TOPIC_OR_PARTITION")
            peer.send_without_reply(produce("t", acks=0), 9)
            await ask(peer, m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            unanswered, versions = lines(caplog)
            assert unanswered.startswith("Produce v9 ")
            assert unanswered.endswith(", 0 answered, no reply")
            assert versions.startswith("ApiVersions v3 ")

    run(check())
