"""Settings as clients see and change them: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

What a broker knows itself it answers from its image. Changes are checked here as far as they are about this broker, and
go to the controller; only the levels of loggers, which nobody keeps, are changed on the spot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from headrace.broker import loggers
from headrace.broker.config_view import ConfigView, Described, Source, logger_entry
from headrace.broker.forward import Channel
from headrace.config.client_metrics import ClientMetricsConfig
from headrace.config.group_settings import GroupSettings
from headrace.errors import Error, Refused
from headrace.metadata.configs import Operation, broker_id, check_request, check_size, required, twice_named
from headrace.metadata.dynamic import ALL_BROKERS, Dynamic
from headrace.metadata.image import Image, ResourceType
from headrace.metadata.loader import Loader
from headrace.metadata.names import check_name
from headrace.metadata.refusals import refusal
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

TIMEOUT_SECONDS: Final = 30.0
RESOURCES_A_STEP: Final = 100
"""What is described before the loop gets its turn."""
LISTED: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


DescribedResource = m.DescribeConfigsResponse.DescribeConfigsResult


class Configs:
    __slots__ = ("_channel", "_chosen", "_dynamic", "_loader", "_node_id")

    def __init__(self, loader: Loader, channel: Channel, dynamic: Dynamic, chosen: Mapping[str, str]) -> None:
        """`dynamic` are the settings of this node, which follow the loader's image; `chosen` is what those came to
        that leave the value to the node.
        """
        self._loader = loader
        self._channel = channel
        self._dynamic = dynamic
        self._chosen = chosen
        self._node_id = dynamic.node_id

    # --- describe -----------------------------------------------------------------------------------------------------

    def describe(
        self, connection: Connection, request: Request
    ) -> m.DescribeConfigsResponse | Coroutine[Any, Any, Message]:
        steps = self._described(request.body)
        if len(request.body.resources) > RESOURCES_A_STEP:
            return _in_steps(steps)
        return m.DescribeConfigsResponse(results=list(steps))

    def topic(self, texts: Mapping[str, str]) -> list[Described]:
        """What settings a topic has that has these of its own."""
        return ConfigView(self._loader.image, self._dynamic, self._chosen).topic(texts)

    def _described(self, body: m.DescribeConfigsRequest) -> Iterator[DescribedResource]:
        image = self._loader.image
        view = ConfigView(image, self._dynamic, self._chosen)
        # Nearly all topics have the same settings: those are described once.
        topics: dict[tuple[tuple[str, str], ...], list[Described]] = {}
        for wanted in body.resources:
            kind, name = wanted.resource_type, wanted.resource_name
            result = DescribedResource(resource_type=kind, resource_name=name, error_message="")
            own = tuple(image.configs.get((kind, name), {}).items())
            entries = topics.get(own) if kind == ResourceType.TOPIC and name in image.topic_ids else None
            try:
                if entries is None:
                    entries = self._entries(image, view, kind, name)
                    for entry in entries:
                        if not body.include_synonyms:
                            entry.synonyms = []
                        if not body.include_documentation:
                            entry.documentation = None
                    if kind == ResourceType.TOPIC:
                        topics[own] = entries
                if wanted.configuration_keys:
                    # In the order in which they were asked for: some look for them by their places.
                    by_name = {entry.name: entry for entry in entries}
                    entries = [by_name[key] for key in dict.fromkeys(wanted.configuration_keys) if key in by_name]
                result.configs = entries
            except Refused as refused:
                result.error_code, result.error_message = refused.error, refused.text
            yield result

    def _entries(self, image: Image, view: ConfigView, kind: int, name: str) -> list[Described]:
        match kind:
            case ResourceType.TOPIC:
                check_name(name)
                if name not in image.topic_ids:
                    raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
                return view.topic(image.settings(ResourceType.TOPIC, name))
            case ResourceType.BROKER:
                if name == ALL_BROKERS:
                    return view.of_all_brokers(image.settings(ResourceType.BROKER, ALL_BROKERS))
                self._require_this(name)
                return view.broker()
            case ResourceType.BROKER_LOGGER:
                self._require_this(name)
                return [logger_entry(*level) for level in loggers.levels().items()]
            case ResourceType.CLIENT_METRICS:
                _require_name(name, "A subscription to client metrics")
                texts = image.settings(ResourceType.CLIENT_METRICS, name)
                metrics, _ = ClientMetricsConfig.parse_leniently(texts)
                return view.resource(ClientMetricsConfig.settings, metrics, texts, Source.CLIENT_METRICS)
            case ResourceType.GROUP:
                _require_name(name, "A group")
                texts = image.settings(ResourceType.GROUP, name)
                group, _ = GroupSettings.parse_leniently(texts, GroupSettings.of_broker(self._dynamic.config.groups))
                return view.resource(GroupSettings.settings, group, texts, Source.GROUP)
        raise Refused(Error.INVALID_REQUEST, f"{kind} is no type of a resource with settings.")

    def _require_this(self, name: str) -> None:
        if broker_id(name) != self._node_id:
            raise Refused(Error.INVALID_REQUEST, f"Ask broker {name} itself: this is broker {self._node_id}.")

    # --- list ---------------------------------------------------------------------------------------------------------

    def list(self, connection: Connection, request: Request) -> m.ListConfigResourcesResponse:
        """What has settings, of the types that are asked for; in version 0, the subscriptions to client metrics."""
        body: m.ListConfigResourcesRequest = request.body
        if request.version == 0:
            kinds: Sequence[int] = (ResourceType.CLIENT_METRICS,)
        else:
            kinds = tuple(dict.fromkeys(body.resource_types)) or LISTED
            if any(kind not in LISTED for kind in kinds):
                return m.ListConfigResourcesResponse(error_code=Error.UNSUPPORTED_VERSION)
        image = self._loader.image
        resource = m.ListConfigResourcesResponse.ConfigResource
        return m.ListConfigResourcesResponse(
            config_resources=[
                resource(resource_name=name, resource_type=kind) for kind in kinds for name in _named(image, kind)
            ]
        )

    # --- change -------------------------------------------------------------------------------------------------------

    async def alter(self, connection: Connection, request: Request) -> Message:
        return await self._change(request.body, m.AlterConfigsResponse)

    async def alter_incrementally(self, connection: Connection, request: Request) -> Message:
        return await self._change(request.body, m.IncrementalAlterConfigsResponse)

    async def _change(self, body: Any, response: Any) -> Message:
        """What this broker can refuse, or do, by itself; the rest is the controller's. Answers are in order."""
        try:
            check_size(body.resources)
        except Refused as refused:
            return refusal(body, refused)
        twice = twice_named(body.resources)
        answers: list[Any] = []
        left: list[Any] = []
        for wanted in body.resources:
            answer = response.AlterConfigsResourceResponse(
                resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
            )
            answers.append(answer)
            try:
                check_request(wanted, twice)
                if self._is_settled(body, wanted):
                    continue
            except Refused as refused:
                answer.error_code, answer.error_message = refused.error, refused.text
                continue
            left.append((answer, wanted))
        if left:
            asked = type(body)(resources=[wanted for _, wanted in left], validate_only=body.validate_only)
            try:
                decided: Any = await self._channel.call(asked, TIMEOUT_SECONDS)
            except Refused as refused:
                for answer, _ in left:
                    answer.error_code, answer.error_message = refused.error, refused.text
            else:
                for (answer, _), made in zip(left, decided.responses, strict=True):
                    answer.error_code, answer.error_message = made.error_code, made.error_message
        changed: Message = response(responses=answers)
        return changed

    def _is_settled(self, body: Any, wanted: Any) -> bool:
        """Whether nothing is left for the controller. Raises Refused."""
        is_incremental = isinstance(body, m.IncrementalAlterConfigsRequest)
        if wanted.resource_type == ResourceType.BROKER_LOGGER and is_incremental:
            self._set_loggers(wanted, body.validate_only)
            return True
        if wanted.resource_type == ResourceType.BROKER and wanted.resource_name != ALL_BROKERS:
            self._require_this(wanted.resource_name)
        return False

    def _set_loggers(self, wanted: m.IncrementalAlterConfigsRequest.AlterConfigsResource, validate_only: bool) -> None:
        self._require_this(wanted.resource_name)
        changes: dict[str, str | None] = {}
        for change in wanted.configs:
            if change.config_operation == Operation.SET:
                changes[change.name] = required(change.name, change.value)
            elif change.config_operation == Operation.DELETE:
                changes[change.name] = None
            else:
                raise Refused(Error.INVALID_REQUEST, "The level of a logger can be set and unset, and nothing else.")
        for name, level in changes.items():
            loggers.check_level(name, level)
        if not validate_only:
            loggers.set_levels(changes)


async def _in_steps(results: Iterator[DescribedResource]) -> Message:
    response = m.DescribeConfigsResponse()
    while step := list(islice(results, RESOURCES_A_STEP)):
        response.results += step
        await asyncio.sleep(0)
    return response


def _require_name(name: str, what: str) -> None:
    if not name:
        raise Refused(Error.INVALID_REQUEST, f"{what} needs a name.")


def _named(image: Image, kind: int) -> Iterable[str]:
    """Topics and brokers all have settings; the others are what somebody set something of."""
    match kind:
        case ResourceType.TOPIC:
            return sorted(image.topic_ids)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(number) for number in sorted(image.brokers)]
    return sorted(name for of_kind, name in image.configs if of_kind == kind)
