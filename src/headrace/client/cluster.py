"""The way to every broker: where to begin, who leads what, and what to do when somebody does not answer.

Requests that any broker can answer go to one that is connected. The map of leaders is asked for again when something
failed or when it is old; one request at a time does that for everybody. When no known broker answers, the client begins
again at the addresses that it was given (KIP-899).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.client.arguments import items, text
from headrace.client.backoff import Backoff
from headrace.client.errors import Closed, Unreachable, WrongArgument
from headrace.client.link import Link
from headrace.client.metadata import Metadata, TopicInfo
from headrace.client.settings import Settings
from headrace.config.host_name import is_host_name
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.peer import Disconnected
from headrace.protocol.message import Message
from headrace.protocol.messages import MetadataRequest, MetadataResponse

__all__ = ["Cluster"]

_log = logging.getLogger(__name__)

Address = tuple[str, int]
DEFAULT_PORT: Final = 9092


class Cluster:
    __slots__ = (
        "_age_timer",
        "_background",
        "_bootstrap",
        "_chance",
        "_is_asked_again",
        "_links",
        "_loop",
        "_refresh_backoff",
        "_refresh_timer",
        "_refreshed_at",
        "_refreshing",
        "_refreshing_count",
        "_wanted",
        "changed",
        "is_closed",
        "metadata",
        "settings",
    )

    def __init__(self, bootstrap: str | Sequence[str], settings: Settings, chance: random.Random) -> None:
        self.settings = settings
        self.metadata = Metadata()
        self.changed: list[Callable[[], None]] = []
        """Called when the metadata was refreshed."""
        self.is_closed = False
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._bootstrap = [Link(*address, settings, chance) for address in parse_addresses(bootstrap)]
        self._links: dict[tuple[int, object], Link] = {}
        self._wanted: dict[str, None] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshing_count = 0
        self._background: asyncio.Task[None] | None = None
        self._is_asked_again = False  # since the last answer, which so did not say what somebody needs to know
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._age_timer: asyncio.TimerHandle | None = None
        self._refresh_backoff = self.backoff()
        self._refreshed_at = float("-inf")

    def backoff(self) -> Backoff:
        return Backoff(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s, self._chance)

    def check_usable(self) -> None:
        """A client is of use until it is closed, and in the loop that it was made in."""
        if self.is_closed:
            raise Closed(_CLOSED)
        if asyncio.get_running_loop() is not self._loop:
            raise WrongArgument("The client was made in another event loop: make one in this loop.")

    # --- requests -----------------------------------------------------------------------------------------------------

    def link(self, node_id: int, owner: object = None) -> Link | None:
        """The link to a broker that the metadata knows: the one that all share, or one for an owner alone.

        Answers come in the order of the requests, so a fetch that waits for records holds up whatever follows it:
        who fetches owns its links.
        """
        self.check_usable()
        node = self.metadata.nodes.get(node_id)
        if node is None:
            return None
        link = self._links.get((node_id, owner))
        if link is None or (link.host, link.port) != (node.host, node.port):
            if link is not None:
                link.close()
            link = Link(node.host, node.port, self.settings, self._chance, node_id)
            self._links[node_id, owner] = link
        return link

    def release(self, owner: object) -> None:
        """Close the links of an owner."""
        for key in [key for key in self._links if key[1] is owner]:
            self._links.pop(key).close()

    async def call_any(self, message: Message, timeout_s: float | None = None) -> Any:
        """Ask the brokers one after another until one answers; Unreachable when none does."""
        self.check_usable()
        failures: dict[str, HeadraceError] = {}
        for link in self._candidates():
            try:
                return await link.call(message, timeout_s)
            except WrongArgument:
                raise
            except HeadraceError as error:
                if self.is_closed:
                    raise
                failures[str(link)] = error
        for failure in failures.values():
            if isinstance(failure, Refused):  # somebody is there, and does not know this API
                raise failure
        reasons = "; ".join(f"{address}: {str(why).rstrip('.')}" for address, why in failures.items())
        raise Unreachable(
            f"No broker answers ({reasons}): check that the addresses are right and that a broker is running there."
        )

    async def call(self, message: Message, node_id: int | None = None, timeout_s: float | None = None) -> Any:
        """Ask one broker, or any; tries again within the operation time-out while nobody answers."""
        deadline = self._loop.time() + self.settings.operation_timeout_s
        backoff = self.backoff()
        while True:
            try:
                if node_id is None:
                    return await self.call_any(message, timeout_s)
                link = self.link(node_id)
                if link is None:
                    await self.refresh()
                    link = self.link(node_id)
                if link is None:
                    raise Unreachable(f"The cluster has no broker {node_id}: list the brokers with describe_cluster.")
                return await link.call(message, timeout_s)
            except (Disconnected, Unreachable) as error:
                await self.wait_to_retry(backoff, deadline, error)

    async def wait_to_retry(self, backoff: Backoff, deadline: float, error: HeadraceError) -> None:
        """Sleep before the next try, or raise the error when there is no time left for one."""
        delay_s = backoff.failed()
        if self.is_closed or self._loop.time() + delay_s >= deadline:
            raise error
        await asyncio.sleep(delay_s)

    def _candidates(self) -> list[Link]:
        known = [link for node_id in self.metadata.nodes if (link := self.link(node_id)) is not None]
        self._chance.shuffle(known)
        # Connected ones first, then those that have not failed; where we began comes last, and after all have failed.
        known.sort(key=lambda link: (not link.is_ready, link.is_failing))
        return known + sorted(self._bootstrap, key=lambda link: (not link.is_ready, link.is_failing))

    # --- topics -------------------------------------------------------------------------------------------------------

    async def topic(self, name: str, *, create: bool = False, timeout_s: float | None = None) -> TopicInfo:
        """A topic that is there and of which at least one partition has a leader. Waits for that."""
        deadline = self._loop.time() + (self.settings.operation_timeout_s if timeout_s is None else timeout_s)
        backoff = self.backoff()
        while True:
            info = self.metadata.topics.get(name)
            if info is not None and any(partition.leader_id >= 0 for partition in info.partitions.values()):
                return info
            self.want(name)
            error: HeadraceError
            try:
                await self.refresh()
                if create:
                    await self._create_missing(name)
                info = self.metadata.topics.get(name)
                if info is not None and info.error is Error.NONE and info.partitions:
                    if any(partition.leader_id >= 0 for partition in info.partitions.values()):
                        return info
                    error = Refused(Error.LEADER_NOT_AVAILABLE, f"No partition of {name} has a leader: {_WAIT}")
                else:
                    error = _topic_error(name, Error.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error)
                    if not error.error.retriable:
                        raise error
            except (Disconnected, Unreachable) as unreachable:
                error = unreachable
            await self.wait_to_retry(backoff, deadline, error)

    def why_no_leader(self, topic: str, index: int) -> Refused:
        """What to say of a partition whose leader is not known."""
        info = self.metadata.topics.get(topic)
        if info is None or info.error is not Error.NONE:
            return _topic_error(topic, Error.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error)
        if index not in info.partitions:
            text = f"Topic {topic} has no partition {index}: it has {len(info.partitions)}."
            return Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, text)
        return Refused(Error.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader: {_WAIT}")

    def want(self, name: str) -> None:
        """From now on the metadata is to know this topic. One that can't be asked for would spoil it for the others."""
        text("topic", name, empty=True)  # of a foreign member too, which may have subscribed to anything
        self._wanted[name] = None

    async def _create_missing(self, name: str) -> None:
        """To ask for a topic may create it, where the cluster allows that. Only producers do so: names may be wrong."""
        info = self.metadata.topics.get(name)
        if info is not None and info.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
            asked = [MetadataRequest.MetadataRequestTopic(name=name)]
            response = await self.call_any(MetadataRequest(topics=asked, allow_auto_topic_creation=True))
            if response.error_code == Error.NONE:
                self._take(response)

    # --- refreshing ---------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Ask for the metadata now. Who asks while that is under way for the same topics gets the same answer."""
        while True:
            self.check_usable()
            if self._refreshing is None:
                self._refreshing_count = len(self._wanted)
                self._refreshing = self._loop.create_task(self._refresh())
                self._refreshing.add_done_callback(self._refresh_ended)
            refreshing, is_whole = self._refreshing, self._refreshing_count == len(self._wanted)
            await asyncio.wait([refreshing])  # whoever stops waiting does not stop the others
            if is_whole:
                break
        if refreshing.cancelled():
            raise Closed(_CLOSED)
        refreshing.result()

    def refresh_soon(self) -> None:
        """Something failed that the metadata may explain: refresh in the background until it succeeds.

        Asked for again and again, as for a topic that is not there, it comes less and less often.
        """
        if self.is_closed or self._refresh_timer is not None:
            return
        if self._background is not None:
            self._is_asked_again = True
            return
        now = self._loop.time()
        if now - self._refreshed_at > 2 * self.settings.retry_backoff_max_s:
            self._refresh_backoff.succeeded()
        due = self._refreshed_at + self._refresh_backoff.failed() - now
        self._refresh_timer = self._loop.call_later(max(0.0, due), self._refresh_in_background)

    def _refresh_in_background(self) -> None:
        self._refresh_timer = None
        self._background = self._loop.create_task(self._refresh_until_answered())

    async def _refresh_until_answered(self) -> None:
        try:
            await self.refresh()
        except HeadraceError as error:
            if not self.is_closed:
                _log.info("metadata could not be refreshed: %s", error)
                self._refresh_timer = self._loop.call_later(self._refresh_backoff.failed(), self._refresh_in_background)
        finally:
            self._background = None
            if self._is_asked_again:
                self.refresh_soon()

    def _refresh_ended(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()

    async def _refresh(self) -> None:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in self._wanted],
            allow_auto_topic_creation=False,
        )
        response: MetadataResponse = await self.call_any(request)
        if response.error_code == Error.REBOOTSTRAP_REQUIRED:
            _log.warning("the cluster asks to begin again at the bootstrap addresses")
            self._forget_nodes()
            response = await self.call_any(request)
        if response.error_code:
            error = Error.of(response.error_code)
            raise Unreachable(f"The brokers don't say who leads what ({error.name}): {error.text}")
        self._refreshed_at = self._loop.time()
        self._is_asked_again = False
        self._take(response)
        if self._age_timer is not None:
            self._age_timer.cancel()
        self._age_timer = self._loop.call_later(self.settings.metadata_max_age_s, self.refresh_soon)

    def _take(self, response: MetadataResponse) -> None:
        self.metadata.update(response)
        for key in [key for key in self._links if key[0] not in self.metadata.nodes]:
            self._links.pop(key).close()
        for callback in list(self.changed):
            callback()

    def _forget_nodes(self) -> None:
        """Begin again: also the bootstrap addresses are looked up and connected to anew (KIP-1102)."""
        self.metadata.nodes = {}
        for link in [*self._links.values(), *self._bootstrap]:
            link.close()
        self._links = {}
        self._bootstrap = [Link(link.host, link.port, self.settings, self._chance) for link in self._bootstrap]

    async def close(self) -> None:
        self.is_closed = True
        for timer in (self._refresh_timer, self._age_timer):
            if timer is not None:
                timer.cancel()
        tasks = [task for task in (self._refreshing, self._background) if task is not None]
        for task in tasks:
            task.cancel()
        for link in [*self._links.values(), *self._bootstrap]:
            link.close()
        await asyncio.gather(*tasks, return_exceptions=True)


_CLOSED: Final = "The client is closed: make another one."
_ADDRESSES: Final = "an address such as 127.0.0.1:9092, or a list of them"
_WAIT: Final = "wait until one of its brokers is up."


def _topic_error(name: str, error: Error) -> Refused:
    if error is Error.UNKNOWN_TOPIC_OR_PARTITION:
        return Refused(error, f"There is no topic {name}: create it first, or check the name.")
    return Refused(error, f"Topic {name} can't be used ({error.name}): {error.text}")


def parse_addresses(bootstrap: str | Sequence[str]) -> list[Address]:
    """Host and port of "host:port,host:port", or of a list of them; [::1]:9092 for IPv6, 9092 without a port."""
    given = bootstrap.split(",") if isinstance(bootstrap, str) else items("bootstrap", bootstrap, _ADDRESSES)
    for one in given:
        text("bootstrap", one, empty=True)
    addresses = [_parse_address(one.strip()) for one in given if one.strip()]
    if not addresses:
        raise WrongArgument("A client needs the address of at least one broker, such as 127.0.0.1:9092.")
    return addresses


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or not host:
        raise WrongArgument(f"{text} is not an address: write host:port, such as 127.0.0.1:9092.")
    host = host.removeprefix("[").removesuffix("]")
    if not is_host_name(host):
        raise WrongArgument(f"'{host}' is no name of a host.")
    return host, int(port)
