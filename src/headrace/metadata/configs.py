"""What the controller decides about settings: a request goes in, records and a reply come out. PURE.

Each resource is changed or refused as a whole. Nothing is decided here about loggers, whose levels are the broker's
own and are not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.config import LogConfig, Setting, broker_settings
from headrace.config.client_metrics import ClientMetricsConfig
from headrace.config.group_settings import GroupSettings
from headrace.config.setting import Kind
from headrace.errors import Error, Refused
from headrace.metadata.dynamic import ALL_BROKERS, Dynamic, check_broker_settings
from headrace.metadata.image import Image, Resource, ResourceType
from headrace.metadata.names import check_name
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m

if TYPE_CHECKING:
    Wanted = m.AlterConfigsRequest.AlterConfigsResource | m.IncrementalAlterConfigsRequest.AlterConfigsResource

INT32_MAX: Final = 2**31 - 1
CHANGES_A_REQUEST_MAX: Final = 10_000
HINTS_A_REQUEST_MAX: Final = 100
"""After so many refusals, the nearest name to an unknown one is not looked for: that takes a millisecond each."""


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to a setting, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Configs:
    """Decides on an image, which the settings of the controller's own node follow."""

    __slots__ = ("_dynamic", "_hints_left", "_image")

    def __init__(self, image: Image, dynamic: Dynamic) -> None:
        """For one request."""
        self._image = image
        self._dynamic = dynamic
        self._hints_left = HINTS_A_REQUEST_MAX

    # --- requests -----------------------------------------------------------------------------------------------------

    def alter(self, request: m.AlterConfigsRequest) -> tuple[list[Versioned], m.AlterConfigsResponse]:
        """A resource has what the request says and nothing else (the old way: IncrementalAlterConfigs is the new)."""

        def changes(resource: Resource, wanted: m.AlterConfigsRequest.AlterConfigsResource) -> dict[str, str | None]:
            texts = {config.name: required(config.name, config.value) for config in wanted.configs}
            return {**dict.fromkeys(self._current(resource)), **texts}

        response = m.AlterConfigsResponse()
        return self._alter(request, response, changes), response

    def alter_incrementally(
        self, request: m.IncrementalAlterConfigsRequest
    ) -> tuple[list[Versioned], m.IncrementalAlterConfigsResponse]:
        def changes(
            resource: Resource, wanted: m.IncrementalAlterConfigsRequest.AlterConfigsResource
        ) -> dict[str, str | None]:
            return {
                change.name: self._outcome(resource, change.name, change.config_operation, change.value)
                for change in wanted.configs
            }

        response = m.IncrementalAlterConfigsResponse()
        return self._alter(request, response, changes), response

    def _alter(
        self,
        request: m.AlterConfigsRequest | m.IncrementalAlterConfigsRequest,
        response: m.AlterConfigsResponse | m.IncrementalAlterConfigsResponse,
        changes: Callable[[Resource, Any], Mapping[str, str | None]],
    ) -> list[Versioned]:
        check_size(request.resources)
        records: list[Versioned] = []
        twice = twice_named(request.resources)
        for wanted in request.resources:
            resource = (wanted.resource_type, wanted.resource_name)
            answer: Any = response.AlterConfigsResourceResponse(
                resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
            )
            try:
                check_request(wanted, twice)
                made = self._changed(resource, changes(resource, wanted))
            except Refused as refused:
                answer.error_code, answer.error_message = refused.error, refused.text
            else:
                if not request.validate_only:
                    records += made
            response.responses.append(answer)
        return records

    # --- one resource -------------------------------------------------------------------------------------------------

    def _current(self, resource: Resource) -> Mapping[str, str]:
        return self._image.configs.get(resource, {})

    def _outcome(self, resource: Resource, name: str, operation: int, value: str | None) -> str | None:
        """What a setting is after the operation; None when it is not set."""
        match operation:
            case Operation.SET:
                return required(name, value)
            case Operation.DELETE:
                return None
            case Operation.APPEND | Operation.SUBTRACT:
                words = [word for word in required(name, value).split(",") if word]
                setting = settings_of(resource[0]).get(name)
                if setting is None or setting.kind is not Kind.LIST:
                    what = "appended to" if operation == Operation.APPEND else "subtracted from"
                    raise Refused(Error.INVALID_CONFIG, f"{name} is not a list, so nothing can be {what} it.")
                present = self._words(resource, setting)
                if operation == Operation.APPEND:
                    return ",".join([*present, *(word for word in dict.fromkeys(words) if word not in present)])
                return ",".join(word for word in present if word not in words)
        raise Refused(Error.INVALID_REQUEST, f"{operation} is no operation on a setting; 0 to 3 are.")

    def _words(self, resource: Resource, setting: Setting) -> list[str]:
        text = self._current(resource).get(setting.name)
        if text is None and resource[0] == ResourceType.TOPIC:
            text = setting.format(getattr(self._dynamic.config.log, setting.name.replace(".", "_")))
        elif text is None:
            text = setting.format(setting.default)
        return [word for word in text.split(",") if word]

    def _changed(self, resource: Resource, changes: Mapping[str, str | None]) -> list[Versioned]:
        current = self._current(resource)
        after = {**current, **changes}
        self._check(resource, {name: text for name, text in after.items() if text is not None}, changes)
        kind, resource_name = resource
        return [
            (m.ConfigRecord(resource_type=kind, resource_name=resource_name, name=name, value=text), 0)
            for name, text in changes.items()
            if text != current.get(name)
        ]

    def _check(self, resource: Resource, texts: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
        """Refuses what the resource can't be."""
        known = settings_of(resource[0])
        if not self._hints_left and any(key not in known for key in changes):
            raise Refused(Error.INVALID_CONFIG, "The resource has no such setting.")
        try:
            self._check_one(resource, texts, changes)
        except Refused:
            self._hints_left = max(0, self._hints_left - 1)
            raise

    def _check_one(self, resource: Resource, texts: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
        kind, name = resource
        config = self._dynamic.config
        match kind:
            case ResourceType.TOPIC:
                if not name:
                    raise Refused(Error.INVALID_REQUEST, "Settings of all topics are those of brokers; name a topic.")
                check_name(name)
                LogConfig.parse(texts, base=config.log)
                if name not in self._image.topic_ids:
                    raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
            case ResourceType.BROKER:
                if name != ALL_BROKERS:
                    broker_id(name)
                set_now = {key: text for key, text in changes.items() if text is not None}
                check_broker_settings(set_now, of_all=name == ALL_BROKERS)
                self._check_together(texts)
            case ResourceType.GROUP:
                if not name:
                    raise Refused(Error.INVALID_REQUEST, "Settings of all groups are those of brokers; name a group.")
                made = GroupSettings.parse(texts, base=GroupSettings.of_broker(config.groups))
                made.check_within(config.groups)
            case ResourceType.CLIENT_METRICS:
                if not name:
                    raise Refused(Error.INVALID_REQUEST, "A subscription to client metrics needs a name.")
                _check_client_metrics(texts)
            case _:
                raise Refused(Error.INVALID_REQUEST, f"{kind} is no type of a resource with settings.")

    def _check_together(self, texts: Mapping[str, str]) -> None:
        """Settings that are fine one by one, over those that the node was started with."""
        known = broker_settings()
        try:
            self._dynamic.started_with.changed_by({name: text for name, text in texts.items() if name in known})
        except Refused as refused:
            raise Refused(Error.INVALID_REQUEST, refused.text) from refused


def check_request(wanted: Wanted, twice: frozenset[Resource]) -> None:
    """Refuses a resource that the request names twice, and one of which it names a setting twice."""
    if (wanted.resource_type, wanted.resource_name) in twice:
        raise Refused(Error.INVALID_REQUEST, "Each resource may be in a request once.")
    counted = Counter(config.name for config in wanted.configs)
    again = next((name for name, count in counted.items() if count > 1), None)
    if again is not None:
        raise Refused(Error.INVALID_REQUEST, f"{again} is in the request more than once.")


def check_size(resources: Sequence[Wanted]) -> None:
    """Refuses what would be more records at once than Kafka writes."""
    if len(resources) + sum(len(wanted.configs) for wanted in resources) > CHANGES_A_REQUEST_MAX:
        raise Refused(
            Error.POLICY_VIOLATION, f"A request changes at most {CHANGES_A_REQUEST_MAX} settings; send several."
        )


def twice_named(resources: Iterable[Wanted]) -> frozenset[Resource]:
    counted = Counter((wanted.resource_type, wanted.resource_name) for wanted in resources)
    return frozenset(resource for resource, count in counted.items() if count > 1)


def broker_id(name: str) -> int:
    """The broker that a resource names. Raises Refused."""
    if not (name.isascii() and name.isdigit() and len(name) <= 10 and int(name) <= INT32_MAX):
        raise Refused(Error.INVALID_REQUEST, f"A broker is named by its number, not by '{name}'.")
    return int(name)


def required(name: str, value: str | None) -> str:
    if value is None:
        raise Refused(Error.INVALID_REQUEST, f"{name} needs a value; DELETE unsets it.")
    return value


def settings_of(kind: int) -> Mapping[str, Setting]:
    """The settings that a resource of this type can have."""
    match kind:
        case ResourceType.TOPIC:
            return LogConfig.settings
        case ResourceType.BROKER:
            return broker_settings()
        case ResourceType.GROUP:
            return GroupSettings.settings
        case ResourceType.CLIENT_METRICS:
            return ClientMetricsConfig.settings
    return {}


def _check_client_metrics(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        setting = ClientMetricsConfig.settings.get(name)
        if setting is None:
            known = ", ".join(ClientMetricsConfig.settings)
            raise Refused(Error.INVALID_REQUEST, f"Client metrics have no setting {name!r}; they have {known}.")
        try:
            setting.parse(text)
        except Refused as refused:  # Kafka's code for an interval that is out of bounds
            raise Refused(Error.INVALID_REQUEST, refused.text) from refused
    ClientMetricsConfig.parse(texts)
