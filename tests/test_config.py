"""Settings: what is read from text, what is refused and how it is said, and what a topic gets from its broker."""

from __future__ import annotations

import ast
import pickle
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import (
    TOPIC,
    CleanerConfig,
    CompressionType,
    Kind,
    LogConfig,
    NodeConfig,
    Scope,
    Setting,
    TimestampType,
    broker_settings,
)
from headrace.config.client_metrics import ClientMetricsConfig
from headrace.config.group import Group
from headrace.config.group_settings import GroupSettings
from headrace.config.known import known_settings
from headrace.config.node import ALIASES, GROUPS
from headrace.config.setting import Effect
from headrace.errors import Error, Refused

SOURCE = Path(__file__).parents[1] / "src" / "headrace"
ALL = [
    *TOPIC.values(),
    *broker_settings().values(),
    *GroupSettings.settings.values(),
    *ClientMetricsConfig.settings.values(),
]
EVERY = [setting for setting in ALL if setting.name not in known_settings()]


def name_of(setting: Setting) -> str:
    return f"{setting.scope.value}:{setting.name}"


def values_of(setting: Setting) -> st.SearchStrategy[Any]:
    """The values that a setting takes."""
    match setting.kind:
        case Kind.BOOLEAN:
            return st.booleans()
        case Kind.SHORT | Kind.INT | Kind.LONG:
            size = {Kind.SHORT: 15, Kind.INT: 31}.get(setting.kind, 63)
            least = -(2**size) if setting.least is None else int(setting.least)
            most = 2**size - 1 if setting.most is None else int(setting.most)
            return st.integers(least, most) | st.sampled_from([int(value) for value in setting.also] or [least])
        case Kind.DOUBLE:
            return st.floats(setting.least, setting.most, allow_nan=False, allow_infinity=False)
        case Kind.LIST:
            if setting.pattern:
                return st.lists(st.from_regex(setting.pattern, fullmatch=True), unique=True).map(tuple)
            words = (
                st.sampled_from(setting.choices) if isinstance(setting.choices, tuple) else st.text("abc/", min_size=1)
            )
            return st.lists(words, unique=True).map(tuple)
        case _:
            return st.text("abc/") if setting.choices is None else st.sampled_from(list(setting.choices))


def refusal(texts: dict[str, str]) -> str:
    with pytest.raises(Refused) as caught:
        LogConfig.parse(texts)
    assert caught.value.error is Error.INVALID_CONFIG
    return caught.value.text


@pytest.mark.parametrize("setting", EVERY, ids=name_of)
class TestEverySetting:
    @given(data=st.data())
    def test_reads_what_it_writes(self, setting: Setting, data: st.DataObject) -> None:
        value = setting.default if setting.refuses else data.draw(values_of(setting))
        assert setting.parse(setting.format(value)) == value

    @given(text=st.text() | st.from_regex(r"\s*[-+]?[0-9_]{1,25}(\.[0-9]+)?(e[0-9]+)?,?\s*", fullmatch=True))
    def test_takes_any_text_or_refuses_it_by_its_name(self, setting: Setting, text: str) -> None:
        try:
            value = setting.parse(text)
        except Refused as refused:
            assert refused.error is Error.INVALID_CONFIG
            assert refused.text.startswith(f"{setting.name} must {'stay' if setting.refuses else 'be'} ") or (
                setting.refuses and refused.text.startswith(f"{setting.name} must be ")
            )
        else:
            assert setting.parse(setting.format(value)) == value

    def test_defaults_to_what_it_would_take(self, setting: Setting) -> None:
        if setting.default is not None:
            assert setting.parse(setting.format(setting.default)) == setting.default

    def test_says_what_it_does(self, setting: Setting) -> None:
        assert setting.doc.endswith(".")
        assert setting.allowed


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"retention.sm": "1"}, "There is no topic setting 'retention.sm'; did you mean retention.ms?"),
        ({"segment_bytes": "1"}, "There is no topic setting 'segment_bytes'; did you mean segment.bytes?"),
        ({"zzz": "1"}, "There is no topic setting 'zzz'; see them all with: headrace config list"),
        ({"retention.ms": "a week"}, "retention.ms must be a whole number of milliseconds, at least -1, not 'a week'."),
        ({"retention.ms": "1_000"}, "retention.ms must be a whole number of milliseconds, at least -1, not '1_000'."),
        ({"retention.ms": "-2"}, "retention.ms must be a whole number of milliseconds, at least -1, not '-2'."),
        ({"retention.ms": ""}, "retention.ms must be a whole number of milliseconds, at least -1, not ''."),
        ({"retention.ms": str(2**63)}, f"retention.ms must be a whole number that fits in 64 bits, not '{2**63}'."),
        ({"segment.bytes": str(2**31)}, f"segment.bytes must be a whole number that fits in 32 bits, not '{2**31}'."),
        ({"min.cleanable.dirty.ratio": "nan"}, "min.cleanable.dirty.ratio must be a number from 0 to 1, not 'nan'."),
        ({"preallocate": "yes"}, "preallocate must be true or false, not 'yes'."),
        ({"compression.gzip.level": "0"}, "compression.gzip.level must be a whole number from 1 to 9, or -1, not '0'."),
        (
            {"leader.replication.throttled.replicas": "0:1,0:1"},
            "leader.replication.throttled.replicas must be a list in which nothing stands twice, not '0:1,0:1'.",
        ),
        ({"cleanup.policy": "a,a"}, "cleanup.policy must be a list of compact, delete, or empty, not 'a,a'."),
        ({"cleanup.policy": "compact,"}, "cleanup.policy must be a list without an empty entry, not 'compact,'."),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms (2) must not be above max.compaction.lag.ms (1).",
        ),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_in_a_sentence(texts: dict[str, str], sentence: str) -> None:
    assert refusal(texts) == sentence


def test_texts_are_read_as_kafka_reads_them() -> None:
    config = LogConfig.parse(
        {
            "cleanup.policy": " compact , delete ",
            "compression.type": "zstd",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "1e-1",
            "preallocate": "TRUE",
            "retention.ms": " +5 ",
        }
    )
    assert config.cleanup_policy == ("compact", "delete")
    assert config.compression_type is CompressionType.ZSTD
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.preallocate is True
    assert config.retention_ms == 5


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("delete,delete", ("delete",)),
        ("delete, compact,delete", ("delete", "compact")),
        ("compact,compact", ("compact",)),
    ],
)
def test_a_policy_that_is_named_twice_counts_once_as_in_kafka(text: str, policy: tuple[str, ...]) -> None:
    assert LogConfig.parse({"cleanup.policy": text}).cleanup_policy == policy


def test_cleanup_policy_says_what_it_means() -> None:
    meanings = {text: LogConfig.parse({"cleanup.policy": text}) for text in ("", "delete", "compact", "compact,delete")}
    assert {text: (config.compact, config.delete) for text, config in meanings.items()} == {
        "": (False, False),
        "delete": (False, True),
        "compact": (True, False),
        "compact,delete": (True, True),
    }


def test_a_topic_takes_what_it_does_not_set_from_its_broker() -> None:
    node = NodeConfig.parse({"log.retention.hours": "2", "compression.type": "lz4", "log.cleaner.threads": "3"})
    config = LogConfig.parse({"compression.type": "zstd"}, base=node.log)
    assert (config.retention_ms, config.compression_type) == (7_200_000, CompressionType.ZSTD)
    assert config.segment_bytes == LogConfig().segment_bytes
    assert node.cleaner.log_cleaner_threads == 3


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1", "log.retention.ms": "1"}, 1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_of_several_names_for_one_thing_the_finest_unit_wins(texts: dict[str, str], retention_ms: int) -> None:
    assert NodeConfig.parse(texts).log.retention_ms == retention_ms


def test_a_broker_is_refused_what_it_does_not_know() -> None:
    with pytest.raises(
        Refused, match=r"There is no broker setting 'log.cleaner.thread'; did you mean log.cleaner.threads\?"
    ):
        NodeConfig.parse({"log.cleaner.thread": "3"})
    with pytest.raises(Refused, match="log.cleaner.dedupe.buffer.size must be at least 1 MiB for each cleaner"):
        NodeConfig.parse({"log.cleaner.dedupe.buffer.size": "1048576", "log.cleaner.threads": "2"})


def test_groups_have_a_protocol_and_an_assignor() -> None:
    with pytest.raises(Refused, match="group.coordinator.rebalance.protocols must have classic in it"):
        NodeConfig.parse({"group.coordinator.rebalance.protocols": "consumer"})
    with pytest.raises(Refused, match="group.consumer.assignors must name one assignor at least"):
        NodeConfig.parse({"group.consumer.assignors": ""})


def test_a_value_beyond_the_bounds_is_for_programs_only() -> None:
    assert LogConfig(segment_bytes=1000).segment_bytes == 1000
    assert refusal({"segment.bytes": "1000"}).startswith("segment.bytes must be")


def test_what_a_later_version_wrote_is_left_out_and_the_rest_counts() -> None:
    texts = {"retention.ms": "5", "from.the.future": "1", "segment.ms": "never", "compression.type": "lz4"}
    config, left_out = LogConfig.parse_leniently(texts, LogConfig(flush_ms=7))
    assert config == LogConfig(retention_ms=5, compression_type=CompressionType.LZ4, flush_ms=7)
    assert list(left_out) == ["from.the.future", "segment.ms"]
    assert LogConfig.parse_leniently({}) == (LogConfig(), {})


def test_a_group_of_values_does_not_change() -> None:
    config = LogConfig(retention_ms=5)
    with pytest.raises(AttributeError, match="does not change; use replace"):
        setattr(config, "retention_ms", 6)  # noqa: B010
    with pytest.raises(TypeError, match="has no field 'retention'"):
        config.replace(retention=6)
    changed = config.replace(retention_ms=6)
    assert (config.retention_ms, changed.retention_ms) == (5, 6)
    assert not hasattr(config, "__dict__")


def test_groups_are_equal_when_their_values_are_and_travel_as_texts_and_pickles() -> None:
    config = LogConfig(retention_ms=5, cleanup_policy=("compact",), compression_type=CompressionType.LZ4)
    texts = {"cleanup.policy": "compact", "compression.type": "lz4", "retention.ms": "5"}
    assert config.texts() == texts
    assert LogConfig.parse(texts) == config
    assert hash(LogConfig.parse(texts)) == hash(config)
    assert pickle.loads(pickle.dumps(config)) == config
    assert repr(config) == "LogConfig(cleanup.policy=compact, compression.type=lz4, retention.ms=5)"
    assert config != LogConfig()
    assert LogConfig() != CleanerConfig()


def test_no_name_is_declared_twice() -> None:
    own = [name for group in GROUPS.values() for name in group.settings]
    twins = [twin.name for setting in TOPIC.values() for twin in setting.broker_twins()]
    every = [*own, *twins, *known_settings(), *ALIASES]
    assert sorted(name for name, count in Counter(every).items() if count > 1) == []


def test_what_no_part_of_a_node_takes_says_why() -> None:
    for setting in ALL:
        if not setting.honoured:
            assert setting.why.endswith("."), setting
            assert setting.why != setting.kafka, setting
        if setting.name in known_settings():
            assert setting.doc.endswith("."), setting
            assert setting.effect is not Effect.HONOURED
            if setting.default is not None:
                assert setting.parse(setting.format(setting.default)) == setting.default


def test_what_would_be_a_promise_that_is_not_kept_is_refused() -> None:
    refused = {
        "ssl.keystore.location": "/a/file",
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "org.example.Authorizer",
        "remote.log.storage.system.enable": "true",
        "process.roles": "broker",
        "security.inter.broker.protocol": "SSL",
        "metric.reporters": "",
        "config.providers": "file",
        "group.share.max.size": "5",
        "controller.quorum.voters": "1@here:9093,2@there:9093",
    }
    for name, text in refused.items():
        with pytest.raises(Refused, match=name.replace(".", "[.]")):
            NodeConfig.parse({name: text})
    fine = {
        "process.roles": "controller,broker",
        "num.io.threads": "99",
        "sasl.enabled.mechanisms": "GSSAPI",
        "controller.quorum.voters": "1@here:9093",
        "authorizer.class.name": "",
    }
    assert NodeConfig.parse(fine).texts == fine
    with pytest.raises(Refused, match="at least 1"):
        NodeConfig.parse({"num.io.threads": "0"})


def test_kafkas_other_names_for_a_node_and_its_folders_are_taken() -> None:
    config = NodeConfig.parse({"broker.id": "7", "log.dir": "/a,/b"})
    assert (config.identity.node_id, config.storage.log_dirs) == (7, ("/a", "/b"))
    assert NodeConfig.parse({"log.dir": "/a", "log.dirs": "/b"}).storage.log_dirs == ("/b",)
    assert NodeConfig.parse({"broker.id": "7", "node.id": "7"}).identity.node_id == 7
    assert NodeConfig.parse({"broker.id": "-1"}).identity.node_id == 1
    with pytest.raises(Refused, match="both name the node"):
        NodeConfig.parse({"broker.id": "7", "node.id": "8"})


def test_settings_that_change_while_a_node_runs_lie_over_those_it_was_started_with() -> None:
    started = NodeConfig.parse({"log.retention.hours": "1", "log.cleaner.threads": "2", "num.partitions": "3"})
    changed = started.changed_by({"log.retention.ms": "5", "log.cleaner.threads": "4", "max.connections": "9"})
    assert (changed.log.retention_ms, changed.cleaner.log_cleaner_threads) == (5, 4)
    assert (changed.listener.max_connections, changed.topics.num_partitions) == (9, 3)
    assert changed.texts == started.texts
    assert started.changed_by({}) is started


def test_every_choice_is_an_enum_or_a_list_of_words() -> None:
    for setting in EVERY:
        if setting.kind is Kind.STRING and setting.choices is not None:
            assert isinstance(setting.choices, type)
            assert issubclass(setting.choices, Enum)


def test_a_setting_that_is_called_honoured_is_read_by_something() -> None:
    read = {
        node.attr
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "config"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    # What is read under another name: `compact` and `delete`, `addresses`, `advertised`, `security_protocol`.
    read |= {
        "max_connections_per_ip_overrides",
        "http_listen",
        "cleanup_policy",
        "listeners",
        "advertised_listeners",
        "listener_security_protocol_map",
    }
    groups: tuple[type[Group], ...] = (LogConfig, *GROUPS.values())
    fields = {setting.name: field for group in groups for field, setting in group.fields.items()}
    honoured = {
        setting.name
        for setting in EVERY
        if setting.honoured and setting.name in fields and setting.scope is not Scope.GROUP
    }
    assert {name for name in honoured if fields[name] not in read} == set()
