"""Settings of topics, brokers, loggers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.client.admin.calls import Calls, check
from headrace.protocol.message import Message
from headrace.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

__all__ = [
    "ConfigCalls",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ResourceType",
]


class ResourceType(IntEnum):
    """What can have settings, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigType(IntEnum):
    """What a value looks like, by Kafka's numbers."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN


class ConfigOperation(IntEnum):
    """How a setting changes, by Kafka's numbers. The last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """A topic, a broker by its id as text ("" for all brokers), a group, …"""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """One broker; without an id what all brokers get unless they have their own."""
        return cls(ResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def logger(cls, broker_id: int) -> ConfigResource:
        return cls(ResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        return cls(ResourceType.GROUP, name)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        return cls(ResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name}" if self.name else f"all {kind}s"

    @property
    def broker_id(self) -> int | None:
        """The broker that has to be asked; None where any may be."""
        if self.type not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not self.name.isdigit():
            return None
        return int(self.name)


class ConfigSynonym(NamedTuple):
    """A setting that gives the value where those before it in the list are not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(slots=True)
class ConfigEntry:
    name: str
    value: str | None
    """None where it is secret, or not set and without a default."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: list[ConfigSynonym] = field(default_factory=list)
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


class ConfigChange(NamedTuple):
    """One change of a setting; `None` for DELETE."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class ConfigCalls(Calls):
    __slots__ = ()

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        names: Sequence[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of resources, all or those with these names. Refused when one is not there."""
        wanted = DescribeConfigsRequest.DescribeConfigsResource
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        for broker_id, asked in _by_broker(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    wanted(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if names is None else list(names),
                    )
                    for resource in asked
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
            response: DescribeConfigsResponse = await self._cluster.call(request, broker_id)
            for result in response.results:
                resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
                check(result.error_code, result.error_message, f"The settings of {resource} can't be described")
                found[resource] = {config.name: _entry(config) for config in result.configs}
        return found

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None] | Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings (KIP-339): names and values, None to go back to the default; or `ConfigChange`s.

        Refused when those of one resource could not be: the others may have been.
        """
        resource_class = IncrementalAlterConfigsRequest.AlterConfigsResource
        config_class = IncrementalAlterConfigsRequest.AlterableConfig
        for broker_id, asked in _by_broker(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    resource_class(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            config_class(name=change.name, config_operation=change.operation, value=change.value)
                            for change in _changes(changes[resource])
                        ],
                    )
                    for resource in asked
                ],
                validate_only=validate_only,
            )
            await self._alter(asked, request, broker_id)

    async def replace_configs(
        self, settings: Mapping[ConfigResource, Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Give resources these settings and no others: what is not named goes back to its default."""
        resource_class, config_class = AlterConfigsRequest.AlterConfigsResource, AlterConfigsRequest.AlterableConfig
        for broker_id, asked in _by_broker(settings).items():
            request = AlterConfigsRequest(
                resources=[
                    resource_class(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[config_class(name=name, value=value) for name, value in settings[resource].items()],
                    )
                    for resource in asked
                ],
                validate_only=validate_only,
            )
            await self._alter(asked, request, broker_id)

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[ConfigResource]:
        """What has settings, or could have some: of these types, or of all (KIP-1142)."""
        request = ListConfigResourcesRequest(resource_types=[int(kind) for kind in types])
        response: ListConfigResourcesResponse = await self._cluster.call(request)
        check(response.error_code, None, "The resources that have settings can't be listed")
        return [
            ConfigResource(ResourceType(found.resource_type), found.resource_name)
            for found in response.config_resources
        ]

    async def _alter(self, asked: Sequence[ConfigResource], request: Message, broker_id: int | None) -> None:
        """To ask twice does no harm, so that an answer that was lost is asked for again."""
        if broker_id is not None:
            response: AlterConfigsResponse = await self._cluster.call(request, broker_id)
            results = [(result.error_code, result) for result in response.responses]
        else:
            changes = self._change(
                list(asked), lambda keys: _only(request, keys), _altered, lambda resource: f"The {resource}"
            )
            results = [(result.error_code, result) async for _, result, _ in changes]
        for code, result in results:
            resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
            check(code, result.error_message, f"The settings of {resource} can't be altered")


def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """A broker tells and takes its own settings itself; None: whichever broker."""
    brokers: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        brokers.setdefault(resource.broker_id, []).append(resource)
    return brokers


def _only(request: Message, resources: Sequence[ConfigResource]) -> Message:
    """The request for some of its resources."""
    assert isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest)
    wanted: list[Any] = [
        one
        for one in request.resources
        if ConfigResource(ResourceType(one.resource_type), one.resource_name) in resources
    ]
    return type(request)(resources=wanted, validate_only=request.validate_only)


def _altered(
    response: AlterConfigsResponse,
) -> list[tuple[ConfigResource, int, AlterConfigsResponse.AlterConfigsResourceResponse]]:
    return [
        (ConfigResource(ResourceType(one.resource_type), one.resource_name), one.error_code, one)
        for one in response.responses
    ]


def _changes(changes: Mapping[str, str | None] | Sequence[ConfigChange]) -> Sequence[ConfigChange]:
    if not isinstance(changes, Mapping):
        return changes
    return [
        ConfigChange(name, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
        for name, value in changes.items()
    ]


def _entry(config: DescribeConfigsResponse.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=ConfigSource(config.config_source),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        synonyms=[ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in config.synonyms],
        type=ConfigType(config.config_type),
        documentation=config.documentation,
    )
