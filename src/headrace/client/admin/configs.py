"""Settings of topics, brokers, loggers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Self

from headrace.client.admin.calls import Calls, check
from headrace.client.arguments import INT32_MAX, flag, instance, items, mapping, refuse, text, texts
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


class _Known(IntEnum):
    """Numbers of Kafka's: one that a newer broker has is UNKNOWN, which is 0."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)


class ResourceType(_Known):
    """What can have settings, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(_Known):
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


class ConfigType(_Known):
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
    def of(cls, told: Any) -> ConfigResource:
        """The one that a part of a response speaks of."""
        return cls(ResourceType(told.resource_type), told.resource_name)

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
        flag("synonyms", synonyms)
        flag("documentation", documentation)
        resources = items("resources", resources, "a list of ConfigResource")
        for resource in resources:
            _check_resource("resources", resource)
        if names is not None:
            names = texts("names", names)
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
                resource = ConfigResource.of(result)
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
        kind = IncrementalAlterConfigsRequest.AlterableConfig
        changes = mapping("changes", changes, "settings by ConfigResource")
        configs = {
            resource: [
                kind(name=change.name, config_operation=change.operation, value=change.value)
                for change in _changes(resource, wanted)
            ]
            for resource, wanted in changes.items()
        }
        await self._alter(IncrementalAlterConfigsRequest, configs, validate_only)

    async def replace_configs(
        self, settings: Mapping[ConfigResource, Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Give resources these settings and no others: what is not named goes back to its default."""
        kind = AlterConfigsRequest.AlterableConfig
        settings = mapping("settings", settings, "names and values by ConfigResource")
        configs = {}
        for resource, wanted in settings.items():
            _check_resource("settings", resource)
            named = mapping("each of settings", wanted, "names and values")
            for name, value in named.items():
                _check_setting(name, value)
            configs[resource] = [kind(name=name, value=value) for name, value in named.items()]
        await self._alter(AlterConfigsRequest, configs, validate_only)

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[ConfigResource]:
        """What has settings, or could have some: of these types, or of all (KIP-1142)."""
        wanted = items("types", types, "a list of ResourceType")
        for kind in wanted:
            instance("each of types", kind, ResourceType)
        request = ListConfigResourcesRequest(resource_types=[int(kind) for kind in wanted])
        response: ListConfigResourcesResponse = await self._cluster.call(request)
        check(response.error_code, None, "The resources that have settings can't be listed")
        return [ConfigResource.of(found) for found in response.config_resources]

    async def _alter(
        self,
        kind: type[AlterConfigsRequest | IncrementalAlterConfigsRequest],
        configs: Mapping[ConfigResource, list[Any]],
        validate_only: bool,
    ) -> None:
        """To ask twice does no harm, so that an answer that was lost is asked for again."""
        flag("validate_only", validate_only)

        def request(resources: Sequence[ConfigResource]) -> Message:
            wanted: list[Any] = [
                kind.AlterConfigsResource(resource_type=one.type, resource_name=one.name, configs=changed)
                for one, changed in configs.items()
                if one in resources
            ]
            return kind(resources=wanted, validate_only=validate_only)

        for broker_id, asked in _by_broker(configs).items():
            if broker_id is not None:
                response: AlterConfigsResponse = await self._cluster.call(request(asked), broker_id)
                results = response.responses
            else:
                changes = self._change(asked, request, _altered, lambda resource: f"The {resource}")
                results = [result async for _, result, _ in changes]
            for result in results:
                what = f"The settings of {ConfigResource.of(result)} can't be altered"
                check(result.error_code, result.error_message, what)


def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """A broker tells and takes its own settings itself; None: whichever broker."""
    brokers: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        brokers.setdefault(resource.broker_id, []).append(resource)
    return brokers


def _altered(
    response: AlterConfigsResponse,
) -> list[tuple[ConfigResource, int, AlterConfigsResponse.AlterConfigsResourceResponse]]:
    return [(ConfigResource.of(one), one.error_code, one) for one in response.responses]


def _changes(
    resource: ConfigResource, wanted: Mapping[str, str | None] | Sequence[ConfigChange]
) -> Sequence[ConfigChange]:
    _check_resource("changes", resource)
    if isinstance(wanted, Mapping):
        changes = [
            ConfigChange(name, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
            for name, value in wanted.items()
        ]
    else:
        changes = items("each of changes", wanted, "names and values, or a list of ConfigChange")
    for change in changes:
        instance("each change", change, ConfigChange)
        instance("the operation of a change", change.operation, ConfigOperation)
        if change.value is None and change.operation is not ConfigOperation.DELETE:
            refuse(f"the value of {change.name}", "text (str) unless it is deleted", None)
        _check_setting(change.name, change.value)
    return changes


def _check_resource(name: str, resource: object) -> None:
    instance(f"each of {name}", resource, ConfigResource, "a ConfigResource, such as ConfigResource.topic('letters')")
    assert isinstance(resource, ConfigResource)
    instance("the type of a ConfigResource", resource.type, ResourceType)
    text("the name of a ConfigResource", resource.name, empty=True)


def _check_setting(name: object, value: object) -> None:
    text("the name of a setting", name)
    if value is not None:
        text(f"the value of {name}", value, empty=True, most_bytes=INT32_MAX)


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
