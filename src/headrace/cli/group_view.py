"""How far groups are behind: what they have committed beside where the logs end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.cli.cluster_view import TopicPartition, offsets, soon
from headrace.cli.connection import all_topics
from headrace.client.offsets import LATEST
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client import Client, TopicInfo
    from headrace.client.admin import GroupDetail, GroupListing


DESCRIBED: Final = frozenset({"classic", "consumer"})


@dataclass(slots=True)
class PartitionLag:
    topic: str
    partition: int
    committed: int | None
    """None when the group has committed nothing there."""
    end: int | None
    """None when nobody answers for the partition, or it is gone."""
    owner: str | None = None
    host: str | None = None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(slots=True)
class GroupView:
    listing: GroupListing
    detail: GroupDetail | None = None
    partitions: list[PartitionLag] = field(default_factory=list)
    failure: str | None = None

    @property
    def uncommitted(self) -> int:
        """Partitions that it reads, or whose topic it reads, of which it has committed nothing."""
        return sum(part.committed is None for part in self.partitions)

    @property
    def lag(self) -> int | None:
        """Of what it has committed; None when nothing of it is known."""
        known = [part.lag for part in self.partitions if part.lag is not None]
        return sum(known) if known else None


async def group_views(
    client: Client,
    listings: Mapping[str, GroupListing],
    *,
    in_full: bool = False,
    topics: Mapping[str, TopicInfo] | None = None,
    ends: Mapping[TopicPartition, int] | None = None,
) -> list[GroupView]:
    """What these groups have read, and with `in_full` who reads; one that does not tell has a `failure`."""
    views = {name: GroupView(listing) for name, listing in listings.items()}
    if not views:
        return []
    committed = await _each(client, views)
    if in_full:
        await _describe(client, views)
    if topics is None:
        topics = await all_topics(client)
    for name, view in views.items():
        owners = _owners(view.detail)
        its = {topic for topic, _ in committed.get(name, {})}
        whole = [(topic, index) for topic in its if topic in topics for index in topics[topic].partitions]
        keys = sorted({*committed.get(name, {}), *owners, *whole})
        view.partitions = [
            PartitionLag(
                topic,
                index,
                committed.get(name, {}).get((topic, index)),
                None,
                *owners.get((topic, index), (None, None)),
            )
            for topic, index in keys
        ]
    if ends is None:
        used = {part.topic for view in views.values() for part in view.partitions}
        ends = await offsets(client, [topics[name] for name in sorted(used) if name in topics], LATEST)
    for view in views.values():
        for part in view.partitions:
            part.end = ends.get((part.topic, part.partition))
    return list(views.values())


async def _each(client: Client, views: Mapping[str, GroupView]) -> dict[str, dict[TopicPartition, int]]:
    """Committed offsets; all groups in one go, and one by one when that fails."""
    found: dict[str, dict[TopicPartition, int]] = {}

    async def ask(names: Iterable[str]) -> None:
        told = await soon(client.admin.group_offsets(list(names)))
        found.update({name: {key: at.offset for key, at in its.items()} for name, its in told.items()})

    try:
        await ask(views)
    except HeadraceError:
        for name, view in views.items():
            try:
                await ask([name])
            except HeadraceError as error:
                view.failure = str(error)
    return found


async def _describe(client: Client, views: Mapping[str, GroupView]) -> None:
    for name, view in views.items():
        if view.listing.type not in DESCRIBED:
            view.failure = f"Groups of type {view.listing.type} can't be described here; this is what is committed."
            continue
        try:
            view.detail = (await soon(client.admin.describe_groups({name: view.listing.type}))).get(name)
        except HeadraceError as error:
            view.failure = str(error)


def _owners(detail: GroupDetail | None) -> dict[TopicPartition, tuple[str, str]]:
    if detail is None:
        return {}
    return {key: (member.member_id, member.host) for member in detail.members for key in member.assigned}
