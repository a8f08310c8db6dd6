"""Wrong arguments of administration: refused at once, before any broker is asked. No method is left out."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import pytest

from headrace.client import (
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    WrongArgument,
)
from headrace.protocol.messages import ApiVersionsRequest
from tests.client.scripted import TOPIC, ScriptedBroker, running
from tests.client.test_arguments import NOT_FLAG, NOT_PARTITIONS, NOT_TEXT, NOT_WHOLE, refused
from tests.net.loops import Run, on_every_loop

KEY = (TOPIC, 0)
RESOURCE = ConfigResource.topic(TOPIC)
MAYBE_EMPTY = tuple(value for value in NOT_TEXT if value != "")
NOT_NAMES: tuple[Any, ...] = ("letters", b"letters", None, 5, *([name] for name in MAYBE_EMPTY))
NOT_MAPPING: tuple[Any, ...] = ([KEY], "letters", None, 5)
SOME_PARTITIONS: tuple[Any, ...] = tuple(value for value in NOT_PARTITIONS if value is not None)
UNSET = ConfigChange("a", None)
NOT_RESOURCE: tuple[Any, ...] = (TOPIC, 5, (ResourceType.TOPIC, TOPIC), ConfigResource(2, TOPIC))  # type: ignore[arg-type]


class Wrong(NamedTuple):
    method: str
    argument: str
    """A part of the sentence, and the name of the parameter unless there is another."""
    values: tuple[Any, ...]
    right: dict[str, Any] = {}  # noqa: RUF012
    """The other arguments."""
    parameter: str = ""


WRONG = [
    Wrong("request", "message", (None, 5, "ApiVersions")),
    Wrong("request", "broker", ("1", -1, True), {"message": ApiVersionsRequest()}),
    Wrong("request", "timeout_s", ("1", -1, 0), {"message": ApiVersionsRequest()}),
    Wrong("create_topics", "topics", (TOPIC, None, 5)),
    Wrong("create_topics", "the name of a topic", tuple([name] for name in NOT_TEXT), parameter="topics"),
    Wrong("create_topics", "validate_only", NOT_FLAG, {"topics": [TOPIC]}),
    Wrong("delete_topics", "topics", (TOPIC, None, 5, b"i" * 16, *([name] for name in NOT_TEXT))),
    Wrong("create_partitions", "topics", (*NOT_MAPPING, {5: 3}, {"": 3})),
    Wrong("create_partitions", "count", ({TOPIC: 0}, {TOPIC: "3"}, {TOPIC: None}), parameter="topics"),
    Wrong("create_partitions", "validate_only", NOT_FLAG, {"topics": {TOPIC: 3}}),
    Wrong("list_topics", "internal", NOT_FLAG),
    Wrong("describe_topics", "names", NOT_NAMES),
    Wrong("describe_topic_partitions", "names", NOT_NAMES),
    Wrong("describe_topic_partitions", "page_size", (0, *NOT_WHOLE)),
    Wrong("list_offsets", "times", (*NOT_MAPPING, {TOPIC: 0}, {KEY: "now"}, {KEY: None}, {KEY: -9}, {KEY: 1.5})),
    Wrong("list_offsets", "isolation_level", (1, None, "committed"), {"times": {KEY: 0}}),
    Wrong("delete_records", "before", (*NOT_MAPPING, {TOPIC: 0}, {KEY: "1"}, {KEY: -2}, {KEY: None})),
    Wrong("describe_producers", "partitions", NOT_PARTITIONS[:4]),
    Wrong("describe_producers", "partition", NOT_PARTITIONS, parameter="partitions"),
    Wrong("list_groups", "states", NOT_NAMES),
    Wrong("list_groups", "types", NOT_NAMES),
    Wrong("list_groups", "failures", ([], "yes")),
    Wrong("describe_groups", "groups", (*NOT_MAPPING, {5: "classic"}, {None: "classic"})),
    Wrong("describe_groups", "the type of g", ({"g": None}, {"g": 5}), parameter="groups"),
    Wrong("group_offsets", "groups", NOT_NAMES),
    Wrong("alter_group_offsets", "group", MAYBE_EMPTY, {"offsets": {KEY: 1}}),
    Wrong("alter_group_offsets", "offsets", (*NOT_MAPPING, {TOPIC: 1}, {KEY: "1"}, {KEY: -1}), {"group": "g"}),
    Wrong("delete_group_offsets", "group", MAYBE_EMPTY, {"partitions": [KEY]}),
    Wrong("delete_group_offsets", "partition", NOT_PARTITIONS, {"group": "g"}, "partitions"),
    Wrong("delete_groups", "groups", NOT_NAMES),
    Wrong("remove_members", "group", MAYBE_EMPTY, {"members": [("m", None)]}),
    Wrong("remove_members", "members", (None, "m", 5, ["m"], [("m",)]), {"group": "g"}),
    Wrong("remove_members", "member id", ([(5, None)], [(None, None)]), {"group": "g"}, "members"),
    Wrong("remove_members", "instance id", ([("m", 5)], [("m", b"i")]), {"group": "g"}, "members"),
    Wrong("list_transactions", "states", NOT_NAMES),
    Wrong("list_transactions", "producer_ids", (None, 5, "1", ["1"], [None])),
    Wrong("list_transactions", "running_ms", NOT_WHOLE),
    Wrong("list_transactions", "pattern", (5, b"t", "\ud800")),
    Wrong("list_transactions", "failures", ([], "yes")),
    Wrong("describe_transactions", "transactional_ids", NOT_NAMES),
    Wrong("fence_producer", "transactional_id", NOT_TEXT),
    Wrong("describe_configs", "resource", (TOPIC, None, *([one] for one in NOT_RESOURCE[:3])), parameter="resources"),
    Wrong("describe_configs", "type of a ConfigResource", ([NOT_RESOURCE[3]],), parameter="resources"),
    Wrong("describe_configs", "names", NOT_NAMES[:2], {"resources": [RESOURCE]}),
    Wrong("describe_configs", "synonyms", NOT_FLAG, {"resources": [RESOURCE]}),
    Wrong("describe_configs", "documentation", NOT_FLAG, {"resources": [RESOURCE]}),
    Wrong("alter_configs", "changes", (*NOT_MAPPING, {TOPIC: {"a": "b"}}, {RESOURCE: "a=b"}, {RESOURCE: None})),
    Wrong(
        "alter_configs", "the value of a", ({RESOURCE: {"a": 5}}, {RESOURCE: [ConfigChange("a", None)]}), {}, "changes"
    ),
    Wrong("alter_configs", "the name of a setting", ({RESOURCE: {5: "b"}}, {RESOURCE: {"": "b"}}), {}, "changes"),
    Wrong("alter_configs", "each change", ({RESOURCE: ["a"]}, {RESOURCE: [("a", "b")]}), {}, "changes"),
    Wrong("alter_configs", "operation", ({RESOURCE: [ConfigChange("a", "b", 9)]},), {}, "changes"),  # type: ignore[arg-type]
    Wrong("alter_configs", "validate_only", NOT_FLAG, {"changes": {RESOURCE: {"a": "b"}}}),
    Wrong("replace_configs", "settings", (*NOT_MAPPING, {TOPIC: {"a": "b"}}, {RESOURCE: ["a"]})),
    Wrong("replace_configs", "the value of a", ({RESOURCE: {"a": 5}},), {}, "settings"),
    Wrong("replace_configs", "validate_only", NOT_FLAG, {"settings": {RESOURCE: {"a": "b"}}}),
    Wrong("list_config_resources", "types", (5, None, "topic", [2], ["topic"])),
    Wrong("describe_log_dirs", "broker_ids", (5, "1", ["1"], [-1])),
    Wrong("describe_log_dirs", "partition", SOME_PARTITIONS, parameter="partitions"),
    Wrong("alter_replica_log_dirs", "moves", (*NOT_MAPPING, {KEY: "/a"}, {(TOPIC, 0, "1"): "/a"}, {(TOPIC, 0, 1): 5})),
    Wrong("describe_cluster", "fenced", NOT_FLAG),
    Wrong("describe_cluster", "operations", NOT_FLAG),
    Wrong("unregister_broker", "broker_id", NOT_WHOLE),
    Wrong("update_features", "level", (*NOT_MAPPING, {5: 1}, {"f": "1"}, {"f": -1}, {"f": 2**15}), {}, "levels"),
    Wrong("update_features", "upgrade_type", (1, "upgrade", None), {"levels": {"f": 1}}),
    Wrong("update_features", "validate_only", NOT_FLAG, {"levels": {"f": 1}}),
    Wrong("elect_leaders", "election", ([KEY], "unclear", None)),
    Wrong("elect_leaders", "partition", SOME_PARTITIONS, parameter="partitions"),
    Wrong("list_partition_reassignments", "partition", SOME_PARTITIONS, parameter="partitions"),
    Wrong(
        "alter_partition_reassignments", "replicas", (*NOT_MAPPING, {TOPIC: [1]}, {KEY: 1}, {KEY: ["1"]}, {KEY: "1"})
    ),
    Wrong("alter_partition_reassignments", "allow_replication_factor_change", NOT_FLAG, {"replicas": {KEY: [1]}}),
    Wrong("describe_user_scram_credentials", "users", NOT_NAMES[:2]),
    Wrong("describe_client_quotas", "entity", ("user", 5, {"user": 5}, {5: "a"})),
    Wrong("describe_client_quotas", "strict", NOT_FLAG),
]
ABORT = {"topic": TOPIC, "partition": 0, "producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 0}
WRONG += [
    Wrong("abort_transaction", name, values, {key: value for key, value in ABORT.items() if key != name})
    for name, values in (
        ("topic", NOT_TEXT),
        ("partition", NOT_WHOLE),
        ("producer_id", NOT_WHOLE),
        ("producer_epoch", (2**15, *NOT_WHOLE)),
        ("coordinator_epoch", NOT_WHOLE),
    )
]


@on_every_loop
def test_every_argument_of_administration_is_looked_at(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            for method, argument, values, right, parameter in WRONG:
                for value in values:
                    call = getattr(client.admin, method)
                    await refused(argument, call, **right, **{parameter or argument: value})
            assert not broker.requests, "somebody was asked"

    run(scenario())


def test_no_argument_of_administration_is_forgotten() -> None:
    methods = {
        name: method for name, method in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")
    }
    known = {(method, name) for method in methods for name in list(inspect.signature(methods[method]).parameters)[1:]}
    assert known == {(wrong.method, wrong.parameter or wrong.argument) for wrong in WRONG}


def test_what_is_to_be_made_is_looked_at_when_it_is_described() -> None:
    topic: Any = NewTopic
    for wrong in (
        {"partitions": "3"},
        {"partitions": -2},
        {"partitions": None},
        {"replication_factor": 2**15},
        {"configs": ["a"]},
        {"configs": {"retention.ms": 5}},
        {"configs": {"": "5"}},
        {"assignments": [[1]]},
        {"assignments": {0: 1}},
        {"assignments": {"0": [1]}},
    ):
        with pytest.raises(WrongArgument, match=f"{next(iter(wrong))}|retention.ms"):
            topic("letters", **wrong)
    partitions: Any = NewPartitions
    for count, assignments in (("3", None), (0, None), (3, 1), (3, [1]), (3, [["1"]])):
        with pytest.raises(WrongArgument, match="count|assignments"):
            partitions(count, assignments)
    assert ConfigChange("a", None, ConfigOperation.DELETE).value is None
