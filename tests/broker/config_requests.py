"""Requests about settings, good and bad, for every version that has room for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.protocol import messages as m
from headrace.protocol.message import Message

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
LONG = "x" * 32_767
NAMES = ("orders", "none", "", "1", "7", "x", LONG)
TYPES = (TOPIC, BROKER, LOGGER, METRICS, GROUP, 0, 99, -1)
SETTINGS: Sequence[tuple[str, str | None]] = (
    ("retention.ms", "1000"),
    ("retention.ms", LONG),
    ("cleanup.policy", "compact"),
    ("log.cleaner.threads", "1"),
    ("node.id", "5"),
    ("root", "INFO"),
    ("interval.ms", "5"),
    ("consumer.session.timeout.ms", "50000"),
    (LONG, "1"),
    ("", ""),
)


def incremental(
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]], validate_only: bool = False
) -> m.IncrementalAlterConfigsRequest:
    """Each resource has a type, a name, and what is done to its settings: name, operation, value."""
    kind = m.IncrementalAlterConfigsRequest
    return kind(
        resources=[
            kind.AlterConfigsResource(
                resource_type=of,
                resource_name=name,
                configs=[
                    kind.AlterableConfig(name=setting, config_operation=operation, value=value)
                    for setting, operation, value in changes
                ],
            )
            for of, name, changes in resources
        ],
        validate_only=validate_only,
    )


def altering(
    *resources: tuple[int, str, Sequence[tuple[str, str | None]]], validate_only: bool = False
) -> m.AlterConfigsRequest:
    kind = m.AlterConfigsRequest
    return kind(
        resources=[
            kind.AlterConfigsResource(
                resource_type=of,
                resource_name=name,
                configs=[kind.AlterableConfig(name=setting, value=value) for setting, value in settings],
            )
            for of, name, settings in resources
        ],
        validate_only=validate_only,
    )


def describing(
    *resources: tuple[int, str, list[str] | None], synonyms: bool = False, documentation: bool = False
) -> m.DescribeConfigsRequest:
    kind = m.DescribeConfigsRequest
    return kind(
        resources=[
            kind.DescribeConfigsResource(resource_type=of, resource_name=name, configuration_keys=keys)
            for of, name, keys in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )


def increments(topic_id: bytes) -> list[Message]:
    return list(_increments())


def _increments() -> Iterator[Message]:
    for of in TYPES:
        for name in NAMES:
            for operation in (SET, DELETE, APPEND, SUBTRACT, 9, -1):
                yield incremental(
                    *((of, name, [(setting, operation, value)]) for setting, value in SETTINGS), validate_only=True
                )
                yield incremental((of, name, [("retention.ms", operation, None)]), validate_only=True)
            yield incremental((of, name, []), (of, name, []))
            yield incremental((of, name, [("a", SET, "1"), ("a", SET, "2")]))
    yield incremental()


def alterations(topic_id: bytes) -> list[Message]:
    requests: list[Message] = [
        altering((of, name, [(setting, value)]), validate_only=True)
        for of in TYPES
        for name in NAMES
        for setting, value in SETTINGS
    ]
    requests += [altering((of, name, []), (of, name, [("a", None)] * 2)) for of in TYPES for name in NAMES]
    return [*requests, altering((TOPIC, "orders", [("a", None)])), altering()]


def descriptions(topic_id: bytes) -> list[Message]:
    keys: Sequence[list[str] | None] = (None, [], ["retention.ms"], [LONG, "", "retention.ms", "retention.ms"])
    requests: list[Message] = [
        describing((of, name, some), synonyms=synonyms, documentation=synonyms)
        for of in TYPES
        for name in NAMES
        for some in keys
        for synonyms in (False, True)
    ]
    return [*requests, describing(*[(TOPIC, "orders", None)] * 3), describing()]


def lists(topic_id: bytes) -> list[Message]:
    return [m.ListConfigResourcesRequest(resource_types=list(types)) for types in ((), (TOPIC, TOPIC), (99,), TYPES)]


ASKED = {32: descriptions, 33: alterations, 44: increments, 74: lists}
REFUSED = [alterations, increments]
