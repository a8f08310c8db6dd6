"""Settings as clients see and change them, on a node in memory."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from headrace.broker import loggers
from headrace.config import TOPIC as TOPIC_SETTINGS
from headrace.config import broker_settings
from headrace.config.node import ALIASES
from headrace.errors import Error, Refused
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.testing.disk import FaultyDisk
from tests.broker.config_requests import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    altering,
    describing,
    incremental,
)
from tests.broker.nodes import ask, connected, create, run, running

DESCRIBE_VERSIONS, ALTER_VERSIONS, INCREMENTAL_VERSIONS = range(1, 5), range(3), range(2)


async def change(peer: Peer, kind: int, name: str, *changes: Any, version: int = 1, **more: Any) -> Error:
    """Asks for a change of one resource; a sentence goes with every error."""
    response = await ask(peer, incremental((kind, name, changes), **more), version)
    (answer,) = response.responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    assert bool(answer.error_message) == bool(answer.error_code)
    return Error(answer.error_code)


async def described(peer: Peer, kind: int, name: str, *keys: str, version: int = 4) -> dict[str, Any]:
    request = describing((kind, name, list(keys) or None), synonyms=True, documentation=version >= 3)
    response = await ask(peer, request, version)
    (result,) = response.results
    assert result.error_code == Error.NONE, result
    return {entry.name: entry for entry in result.configs}


async def value(peer: Peer, kind: int, name: str, key: str) -> str | None:
    text: str | None = (await described(peer, kind, name, key))[key].value
    return text


# --- describe ---------------------------------------------------------------------------------------------------------


def test_numbers_that_go_with_security_are_kept_and_what_it_would_rest_on_is_refused() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            name = "sasl.kerberos.min.time.before.relogin"
            assert await change(peer, BROKER, "1", (name, SET, "58000")) == Error.NONE
            assert await value(peer, BROKER, "1", name) == "58000"
            assert await change(peer, BROKER, "1", ("sasl.enabled.mechanisms", SET, "PLAIN")) == Error.INVALID_REQUEST

    run(check())


def test_names_are_described_once_each_in_the_order_in_which_they_were_asked_for() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            for names in (("default.replication.factor", "num.partitions"), ("num.partitions", "log.dirs")):
                assert list(await described(peer, BROKER, "1", *names)) == list(names)
                assert list(await described(peer, BROKER, "1", *names, "nothing", *names)) == list(names)

    run(check())


@pytest.mark.parametrize("listen", ["auto", "127.0.0.1:0"])
def test_a_port_that_the_node_chose_is_told_with_what_it_was_chosen_by(listen: str) -> None:
    async def check() -> None:
        async with running(http_listen=listen) as node, connected(node) as peer:
            entry = (await described(peer, BROKER, "1", "http.listen"))["http.listen"]
            assert node.http_address is not None
            host, port = node.http_address
            assert entry.value == f"{host}:{port}"
            assert entry.synonyms[0].value == listen

    run(check())


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_a_topic_is_described_in_full_with_where_each_value_comes_from(version: int) -> None:
    async def check() -> None:
        async with running(log_retention_hours="3", message_max_bytes="5000") as node, connected(node) as peer:
            await create(peer, "t", segment_ms="60000")
            entries = await described(peer, TOPIC, "t", version=version)
            assert entries.keys() == TOPIC_SETTINGS.keys()
            own, started, plain = entries["segment.ms"], entries["max.message.bytes"], entries["preallocate"]
            assert (own.value, own.config_source) == ("60000", 1)
            assert [(one.name, one.value, one.source) for one in own.synonyms] == [("segment.ms", "60000", 1)]
            assert (started.value, started.config_source) == ("5000", 4)
            assert [(one.name, one.value, one.source) for one in started.synonyms] == [
                ("message.max.bytes", "5000", 4),
                ("message.max.bytes", "1048588", 5),
            ]
            assert (plain.value, plain.config_source) == ("false", 5)
            retention = entries["retention.ms"]
            assert (retention.value, retention.config_source) == (str(3 * 3_600_000), 4)
            assert [(one.name, one.value, one.source) for one in retention.synonyms] == [
                ("log.retention.hours", "3", 4)
            ]
            for name in ("flush.ms", "segment.jitter.ms", "remote.storage.enable"):
                assert (entries[name].config_source, entries[name].synonyms) == (5, []), "as in Kafka"
            if version >= 3:
                assert all(entry.documentation for entry in entries.values())
                types = {name: entries[name].config_type for name in ("preallocate", "retention.ms", "cleanup.policy")}
                assert types == {"preallocate": 1, "retention.ms": 5, "cleanup.policy": 7}

    run(check())


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_a_broker_is_described_in_full(version: int) -> None:
    async def check() -> None:
        async with running(log_cleaner_threads="3") as node, connected(node) as peer:
            assert await change(peer, BROKER, "", ("log.cleaner.threads", SET, "4")) is Error.NONE
            assert await change(peer, BROKER, "1", ("log.cleaner.threads", SET, "5")) is Error.NONE
            entries = await described(peer, BROKER, "1", version=version)
            assert entries.keys() == broker_settings().keys() | ALIASES.keys()
            threads = entries["log.cleaner.threads"]
            assert [(one.value, one.source) for one in threads.synonyms] == [("5", 2), ("4", 3), ("3", 4), ("1", 5)]
            assert (threads.value, threads.config_source, threads.read_only) == ("5", 2, False)
            assert entries["num.partitions"].read_only
            assert entries["ssl.key.password"].is_sensitive
            assert (entries["ssl.key.password"].value, entries["broker.id"].value) == (None, "1")
            assert entries["log.retention.hours"].value == "168"
            assert entries["log.retention.ms"].value is None
            for name in ("broker.rack", "advertised.listeners", "metadata.log.dir"):
                assert (entries[name].value, entries[name].config_source, entries[name].synonyms) == (None, 5, [])
            defaults = await described(peer, BROKER, "", version=version)
            assert {name: (entry.value, entry.config_source) for name, entry in defaults.items()} == {
                "log.cleaner.threads": ("4", 3)
            }

    run(check())


def test_what_was_not_asked_for_is_left_out() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            (result,) = (await ask(peer, describing((TOPIC, "t", ["retention.ms", "nonsense"])), 4)).results
            (entry,) = result.configs
            assert (entry.name, entry.synonyms, entry.documentation) == ("retention.ms", [], None)
            assert result.error_message == "", "which Kafka says, and not null"

    run(check())


def test_very_many_topics_are_described_in_one_request_each_with_its_own() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            for number in range(3):
                await create(peer, f"t{number}", retention_ms=str(number))
            names = [f"t{number % 4}" for number in range(1000)]
            response = await ask(peer, describing(*((TOPIC, name, ["retention.ms"]) for name in names)), 4)
            assert [result.resource_name for result in response.results] == names
            found = [result.configs[0].value if result.configs else None for result in response.results]
            assert found == ["0", "1", "2", None] * 250

    run(check())


def test_a_request_changes_no_more_settings_than_are_written_at_once() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            changes = [(f"setting-{number}", SET, "1") for number in range(10_001)]
            assert await change(peer, TOPIC, "t", *changes) is Error.POLICY_VIOLATION

    run(check())


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "none", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", Error.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", Error.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", Error.INVALID_REQUEST),
        (BROKER, "one", Error.INVALID_REQUEST),
        (LOGGER, "", Error.INVALID_REQUEST),
        (LOGGER, "7", Error.INVALID_REQUEST),
        (METRICS, "", Error.INVALID_REQUEST),
        (GROUP, "", Error.INVALID_REQUEST),
        (0, "x", Error.INVALID_REQUEST),
        (99, "x", Error.INVALID_REQUEST),
    ],
)
def test_what_can_not_be_described_is_told(kind: int, name: str, error: Error) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            (result,) = (await ask(peer, describing((kind, name, None)), 4)).results
            assert (Error(result.error_code), result.configs) == (error, [])
            assert result.error_message

    run(check())


# --- topics -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", INCREMENTAL_VERSIONS)
def test_settings_of_a_topic_are_set_appended_subtracted_and_unset(version: int) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t", retention_ms="5")

            async def policy_after(operation: int, text: str | None) -> str | None:
                assert (
                    await change(peer, TOPIC, "t", ("cleanup.policy", operation, text), version=version) is Error.NONE
                )
                return await value(peer, TOPIC, "t", "cleanup.policy")

            assert await policy_after(APPEND, "compact") == "delete,compact"
            assert await policy_after(APPEND, "compact,delete") == "delete,compact"
            assert await policy_after(SUBTRACT, "delete") == "compact"
            assert await policy_after(SET, "delete") == "delete"
            assert await policy_after(SUBTRACT, "delete") == ""
            assert await policy_after(DELETE, None) == "delete"
            both = (("retention.ms", SET, "9"), ("segment.ms", SET, "7"))
            assert await change(peer, TOPIC, "t", *both, version=version, validate_only=True) is Error.NONE
            assert await value(peer, TOPIC, "t", "retention.ms") == "5"
            assert await change(peer, TOPIC, "t", *both, version=version) is Error.NONE
            entries = await described(peer, TOPIC, "t", "retention.ms", "segment.ms")
            assert {name: entry.value for name, entry in entries.items()} == {"retention.ms": "9", "segment.ms": "7"}

    run(check())


@pytest.mark.parametrize("version", ALTER_VERSIONS)
def test_the_old_way_replaces_all_settings_of_a_resource(version: int) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t", retention_ms="5", segment_ms="6")

            async def own() -> dict[str, str | None]:
                entries = await described(peer, TOPIC, "t")
                return {name: entry.value for name, entry in entries.items() if entry.config_source == 1}

            only = altering((TOPIC, "t", [("retention.ms", "8")]), validate_only=True)
            assert (await ask(peer, only, version)).responses[0].error_code == Error.NONE
            assert await own() == {"retention.ms": "5", "segment.ms": "6"}
            only.validate_only = False
            assert (await ask(peer, only, version)).responses[0].error_code == Error.NONE
            assert await own() == {"retention.ms": "8"}
            bad = altering((TOPIC, "t", [("retention.ms", "x")]), (TOPIC, "none", []), (LOGGER, "1", []), (99, "x", []))
            assert [answer.error_code for answer in (await ask(peer, bad, version)).responses] == [
                Error.INVALID_CONFIG,
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                Error.INVALID_REQUEST,
                Error.INVALID_REQUEST,
            ]
            twice = altering((TOPIC, "t", []), (TOPIC, "t", []))
            answers = (await ask(peer, twice, version)).responses
            assert [answer.error_code for answer in answers] == [Error.INVALID_REQUEST] * 2
            assert await own() == {"retention.ms": "8"}

    run(check())


REFUSED_CHANGES: list[tuple[int, str, list[tuple[str, int, str | None]], Error]] = [
    (TOPIC, "t", [("nonsense", SET, "1")], Error.INVALID_CONFIG),
    (TOPIC, "t", [("retention.ms", SET, "soon")], Error.INVALID_CONFIG),
    (TOPIC, "t", [("min.cleanable.dirty.ratio", SET, "2")], Error.INVALID_CONFIG),
    (TOPIC, "t", [("retention.ms", SET, None)], Error.INVALID_REQUEST),
    (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], Error.INVALID_REQUEST),
    (TOPIC, "t", [("retention.ms", APPEND, "1")], Error.INVALID_CONFIG),
    (TOPIC, "t", [("cleanup.policy", APPEND, "burn")], Error.INVALID_CONFIG),
    (TOPIC, "t", [("retention.ms", 9, "1")], Error.INVALID_REQUEST),
    (TOPIC, "t", [("remote.storage.enable", SET, "true")], Error.INVALID_CONFIG),
    (TOPIC, "t", [("leader.replication.throttled.replicas", SET, "zz")], Error.INVALID_CONFIG),
    (
        TOPIC,
        "t",
        [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
        Error.INVALID_CONFIG,
    ),
    (TOPIC, "none", [("retention.ms", SET, "1")], Error.UNKNOWN_TOPIC_OR_PARTITION),
    (TOPIC, "none", [("retention.ms", SET, "x")], Error.INVALID_CONFIG),
    (TOPIC, "", [("retention.ms", SET, "1")], Error.INVALID_REQUEST),
    (TOPIC, "a b", [("retention.ms", SET, "1")], Error.INVALID_TOPIC_EXCEPTION),
    (BROKER, "1", [("num.partitions", SET, "2")], Error.INVALID_REQUEST),
    (BROKER, "1", [("log.retention.hours", SET, "2")], Error.INVALID_REQUEST),
    (BROKER, "1", [("nonsense", SET, "2")], Error.INVALID_REQUEST),
    (BROKER, "1", [("log.cleaner.threads", SET, "many")], Error.INVALID_REQUEST),
    (BROKER, "1", [("log.cleaner.dedupe.buffer.size", SET, "5")], Error.INVALID_REQUEST),
    (BROKER, "1", [("log.cleaner.threads", APPEND, "2")], Error.INVALID_CONFIG),
    (BROKER, "7", [("log.cleaner.threads", SET, "2")], Error.INVALID_REQUEST),
    (BROKER, "one", [("log.cleaner.threads", SET, "2")], Error.INVALID_REQUEST),
    (BROKER, "", [("ssl.keystore.type", SET, "JKS")], Error.INVALID_REQUEST),
    (BROKER, "", [("node.id", SET, "1")], Error.INVALID_REQUEST),
    (BROKER, "1", [("listener.name.plaintext.max.connections", SET, "1")], Error.INVALID_REQUEST),
    (LOGGER, "1", [("no.such", SET, "INFO")], Error.INVALID_CONFIG),
    (LOGGER, "1", [("root", SET, "LOUD")], Error.INVALID_CONFIG),
    (LOGGER, "1", [("root", DELETE, None)], Error.INVALID_REQUEST),
    (LOGGER, "1", [("root", APPEND, "INFO")], Error.INVALID_REQUEST),
    (LOGGER, "7", [("root", SET, "INFO")], Error.INVALID_REQUEST),
    (LOGGER, "", [("root", SET, "INFO")], Error.INVALID_REQUEST),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")], Error.INVALID_CONFIG),
    (GROUP, "g", [("share.session.timeout.ms", SET, "46000")], Error.INVALID_CONFIG),
    (GROUP, "g", [("nonsense", SET, "1")], Error.INVALID_CONFIG),
    (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], Error.INVALID_REQUEST),
    (METRICS, "m", [("interval.ms", SET, "10")], Error.INVALID_REQUEST),
    (METRICS, "m", [("match", SET, "client=abc")], Error.INVALID_CONFIG),
    (METRICS, "m", [("match", SET, "client_id=a(")], Error.INVALID_CONFIG),
    (METRICS, "m", [("nonsense", SET, "1")], Error.INVALID_REQUEST),
    (METRICS, "", [("interval.ms", SET, "1000")], Error.INVALID_REQUEST),
    (0, "x", [("a", SET, "1")], Error.INVALID_REQUEST),
    (99, "x", [("a", SET, "1")], Error.INVALID_REQUEST),
]


def test_what_can_not_be_is_refused_with_kafkas_codes_and_changes_nothing() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            for kind, name, changes, error in REFUSED_CHANGES:
                assert await change(peer, kind, name, *changes) is error, (kind, name, changes)
            assert all(entry.config_source == 5 for entry in (await described(peer, TOPIC, "t")).values())
            assert await described(peer, BROKER, "") == {}

    run(check())


def test_each_resource_of_a_request_is_changed_or_refused_by_itself() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            response = await ask(
                peer,
                incremental(
                    (TOPIC, "t", [("retention.ms", SET, "5"), ("segment.ms", SET, "bad")]),
                    (LOGGER, "1", [("no.such", SET, "INFO")]),
                    (BROKER, "", [("message.max.bytes", SET, "7000")]),
                    (TOPIC, "none", [("retention.ms", SET, "5")]),
                    (METRICS, "m", [("interval.ms", SET, "5000")]),
                ),
                1,
            )
            assert [answer.error_code for answer in response.responses] == [
                Error.INVALID_CONFIG,
                Error.INVALID_CONFIG,
                Error.NONE,
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                Error.NONE,
            ]
            entries = await described(peer, TOPIC, "t")
            assert (entries["retention.ms"].config_source, entries["max.message.bytes"].value) == (5, "7000")

    run(check())


# --- brokers, groups, metrics, loggers --------------------------------------------------------------------------------


def test_what_a_broker_is_told_counts_at_once_and_after_a_restart() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "plain")
            await create(peer, "own", retention_ms="77")
            changes = [
                ("log.retention.ms", SET, "5000"),
                ("message.max.bytes", SET, "4000"),
                ("max.connections", SET, "9"),
            ]
            assert await change(peer, BROKER, "", *changes) is Error.NONE
            assert await change(peer, BROKER, "1", ("log.retention.ms", SET, "6000")) is Error.NONE
            assert await value(peer, TOPIC, "plain", "retention.ms") == "6000"
            assert await value(peer, TOPIC, "own", "retention.ms") == "77"
            assert node._replicas is not None
            assert node._replicas.find("plain", 0).log.config.retention_ms == 6000
            assert node._replicas.find("own", 0).log.config.max_message_bytes == 4000
            assert node._listeners is not None
            assert node._listeners.all[0].limits.connections == 9
        async with running(disk.restart()) as node, connected(node) as peer:
            assert node._replicas is not None
            assert node._replicas.find("plain", 0).log.config.retention_ms == 6000
            assert await change(peer, BROKER, "1", ("log.retention.ms", DELETE, None)) is Error.NONE
            assert node._replicas.find("plain", 0).log.config.retention_ms == 5000
            assert await create(peer, "later")
            assert node._replicas.find("later", 0).log.config.max_message_bytes == 4000
            created = await ask(
                peer,
                m.CreateTopicsRequest(
                    topics=[m.CreateTopicsRequest.CreatableTopic(name="told", num_partitions=1, replication_factor=1)],
                    timeout_ms=5000,
                    validate_only=True,
                ),
                7,
            )
            told = {config.name: config.value for config in created.topics[0].configs}
            assert (told["retention.ms"], told["max.message.bytes"]) == ("5000", "4000")

    run(check())


def test_the_cleaner_takes_other_settings_while_it_runs() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            changes = [("log.cleaner.threads", SET, "3"), ("log.cleaner.io.max.bytes.per.second", SET, "1000")]
            assert await change(peer, BROKER, "1", *changes) is Error.NONE
            assert node._replicas is not None
            cleaner = node._replicas.cleaner
            assert cleaner is not None
            assert (len(cleaner._workers), cleaner._config.log_cleaner_io_max_bytes_per_second) == (3, 1000)
            assert await change(peer, BROKER, "1", ("log.cleaner.threads", DELETE, None)) is Error.NONE
            assert len(cleaner._workers) == 1

    run(check())


def test_groups_and_subscriptions_to_metrics_have_settings_and_are_listed() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            assert await change(peer, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) is Error.NONE
            wanted = [("interval.ms", SET, "1000"), ("metrics", SET, "a.,b."), ("match", SET, "client_id=x.*")]
            assert await change(peer, METRICS, "m", *wanted) is Error.NONE
            assert await change(peer, METRICS, "m", ("metrics", APPEND, "c.")) is Error.NONE
            group = await described(peer, GROUP, "g")
            session = group["consumer.session.timeout.ms"]
            assert (session.value, session.config_source) == ("50000", 8)
            assert group["consumer.heartbeat.interval.ms"].config_source == 5
            metrics = await described(peer, METRICS, "m")
            assert {name: (one.value, one.config_source) for name, one in metrics.items()} == {
                "interval.ms": ("1000", 7),
                "metrics": ("a.,b.,c.", 7),
                "match": ("client_id=x.*", 7),
            }
            assert (await described(peer, METRICS, "none"))["interval.ms"].config_source == 5

            async def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
                response = await ask(peer, m.ListConfigResourcesRequest(resource_types=list(kinds)), version)
                assert not response.error_code
                return [
                    (one.resource_type if version else METRICS, one.resource_name) for one in response.config_resources
                ]

            assert await listed(0) == [(METRICS, "m")]
            assert await listed(1) == [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")]
            assert await listed(1, GROUP, TOPIC, GROUP) == [(GROUP, "g"), (TOPIC, "t")]
            refused = await ask(peer, m.ListConfigResourcesRequest(resource_types=[99]), 1)
            assert refused.error_code == Error.UNSUPPORTED_VERSION

    run(check())


def test_levels_of_loggers_change_at_once_and_are_forgotten() -> None:
    logger = logging.getLogger("headrace.broker.configs_of_a_test")
    root = logging.getLogger("headrace")
    before = root.level

    async def check() -> None:
        async with running() as node, connected(node) as peer:
            name = logger.name
            assert (await described(peer, LOGGER, "1"))["root"].config_source == 6
            assert await change(peer, LOGGER, "1", (name, SET, "DEBUG"), validate_only=True) is Error.NONE
            assert logger.level == logging.NOTSET
            assert await change(peer, LOGGER, "1", (name, SET, "debug"), ("root", SET, "ERROR")) is Error.NONE
            assert (logger.level, root.level) == (logging.DEBUG, logging.ERROR)
            levels = await described(peer, LOGGER, "1")
            assert (levels[name].value, levels["root"].value) == ("DEBUG", "ERROR")
            short = name.removeprefix("headrace.")
            assert await change(peer, LOGGER, "1", (short, SET, "TRACE")) is Error.NONE
            assert logger.level == loggers.TRACE
            assert await change(peer, LOGGER, "1", (name, DELETE, None)) is Error.NONE
            assert await value(peer, LOGGER, "1", name) == "ERROR"
            half = [("root", SET, "INFO"), ("no.such", SET, "INFO")]
            assert await change(peer, LOGGER, "1", *half) is Error.INVALID_CONFIG
            assert root.level == logging.ERROR

    try:
        run(check())
    finally:
        root.setLevel(before)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("broker.configz", "did you mean broker.configs?"),
        ("headrace.broker.configz", "did you mean headrace.broker.configs?"),
        ("xyz", "describe the loggers to see them."),
    ],
)
def test_a_logger_that_is_not_there_is_told_with_the_nearest(name: str, expected: str) -> None:
    logging.getLogger("headrace.broker.configs")
    with pytest.raises(Refused, match=f"There is no logger {name}; ") as refused:
        loggers.check_level(name, "DEBUG")
    assert refused.value.text.endswith(expected)


def test_what_is_no_logger_is_refused_without_importing_what_would_be_above_it() -> None:
    program = """
import sys
from headrace.broker import loggers
from headrace.errors import Refused

loggers.check_level("broker.offsets", "DEBUG")
before = set(sys.modules)
for name in ("cli.group.nothing", "client.nothing", "broker.offsets.nothing", "", "..", "../broker", "broker.\\0"):
    try:
        loggers.check_level(name, "DEBUG")
    except Refused:
        continue
    print(name, "is taken for one")
print(*(name for name in set(sys.modules) - before if name.startswith("headrace")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
