"""A client that makes topics, uses them and deletes them, over and over, under names that it uses again (hazard 9)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from headrace.client import NewTopic
from headrace.errors import Error, HeadraceError, Refused
from headrace.testing.sim.history import Entry, Poll, Promise, Write
from headrace.testing.sim.process import Process
from tests.sim.node_clients import Seen, TopicPartition, connected, read_all, sent, text_of


@dataclass(slots=True)
class Made:
    """A topic that the cluster said it has."""

    name: str
    topic_id: bytes
    is_certain: bool
    """Nobody's late request can delete it, or make it a second time."""
    leader_epochs: dict[int, int] = field(default_factory=dict)


class TopicMaker:
    """A request without an answer may come to its end at any time, so its name is not used again (hazard 14)."""

    def __init__(self, seen: Seen, name: str, configs: dict[str, str]) -> None:
        self.name = name
        self.kept: dict[str, Made] = {}
        self.gone: dict[str, None] = {}
        """Deleted for certain."""
        self._seen = seen
        self._configs = configs
        self._free = ["brief"]
        self._named = 0
        self._sent = 0

    def partitions(self) -> dict[TopicPartition, int]:
        """Of the topics that were kept, with their numbers in the history."""
        return {(made.name, 0): self._seen.number(made.topic_id) for made in self.kept.values()}

    async def run(self, process: Process) -> None:
        # Without retries of its own, so that a request that was sent twice is known.
        async with connected(process, operation_timeout_s=0.0) as client:
            while not self._seen.is_stopping:
                made = await self._make(process, client)
                if made is not None:
                    await self._use(process, client, made)
                    await self.look(client)
                    if process.chance.random() < 0.8:
                        await self._delete(process, client, made)
                await asyncio.sleep(process.chance.expovariate(1 / 0.2))

    async def _make(self, process: Process, client: Any) -> Made | None:
        if not self._free:
            self._named += 1
            self._free.append(f"brief{self._named}")
        name = self._free.pop()
        self.gone.pop(name, None)
        is_certain = True
        while not self._seen.is_stopping:
            try:
                topic_id = (await client.admin.create_topics([NewTopic(name, 1, configs=self._configs)]))[name]
                made = self.kept[name] = Made(name, topic_id, is_certain)
                return made
            except Refused as refused:
                if refused.error is Error.TOPIC_ALREADY_EXISTS:
                    if is_certain:
                        self._seen.wrong(f"topic {name} was deleted, and is there")
                    topic_id = await self._id_of(process, client, name)
                    if topic_id is None:
                        return None
                    made = self.kept[name] = Made(name, topic_id, is_certain)
                    return made
            except HeadraceError:
                pass
            is_certain = False
            await asyncio.sleep(process.chance.uniform(0, 0.2))
        return None

    async def _id_of(self, process: Process, client: Any, name: str) -> bytes | None:
        while not self._seen.is_stopping:
            try:
                topic_id: bytes = (await client.admin.describe_topics([name]))[name].topic_id
                return topic_id
            except HeadraceError:
                await asyncio.sleep(process.chance.uniform(0, 0.2))
        return None

    async def _use(self, process: Process, client: Any, made: Made) -> None:
        seen, number = self._seen, self._seen.number(made.topic_id)
        producer = client.producer(delivery_timeout_s=2.0)
        for _ in range(process.chance.randint(1, 5)):
            value = f"{self.name}.{self._sent}.{made.name}"
            self._sent += 1
            write = Write(value, number, made.topic_id.hex(), seen.simulation.now, promise=Promise.ALL_MACHINES)
            seen.history.writes.append(write)
            sent(seen, write, producer.send_soon(made.name, value.encode(), partition=0))
        await producer.flush()
        try:
            async with asyncio.timeout(2.0):
                start = seen.simulation.now
                records = await read_all(client, (made.name, 0))
        except (HeadraceError, TimeoutError):
            return
        finally:
            await producer.close()
        entries = [Entry(record.offset, text_of(record)) for record in records]
        poll = Poll(self.name, number, number, start, seen.simulation.now, entries, reads_to_end=True)
        seen.history.polls.append(poll)

    async def _delete(self, process: Process, client: Any, made: Made) -> None:
        del self.kept[made.name]
        is_certain = True
        while not self._seen.is_stopping:
            try:
                await client.admin.delete_topics([made.name])
                break
            except Refused as refused:
                if refused.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
                    if is_certain and made.is_certain:
                        self._seen.wrong(f"topic {made.name} is lost: it can't be deleted")
                    break
            except HeadraceError:
                pass
            is_certain = False
            await asyncio.sleep(process.chance.uniform(0, 0.2))
        else:
            return
        if is_certain and made.is_certain:
            self.gone[made.name] = None
            self._free.append(made.name)

    async def look(self, client: Any, *, is_last: bool = False) -> None:
        """What was made is there, under its id; what was deleted is not; leader epochs only grow."""
        try:
            names = await client.admin.list_topics()
            found = await client.admin.describe_topics([name for name in self.kept if name in names])
        except HeadraceError as error:
            if is_last:
                self._seen.wrong(f"topics can't be looked at: {error}")
            return
        for name, made in self.kept.items():
            if name not in names:
                if made.is_certain:
                    self._seen.wrong(f"topic {name} is lost")
                continue
            if made.is_certain and found[name].topic_id != made.topic_id:
                self._seen.wrong(f"topic {name} has another id")
            for index, partition in found[name].partitions.items():
                if partition.leader_epoch < made.leader_epochs.get(index, 0):
                    self._seen.wrong(f"the leader epoch of {name}-{index} went back to {partition.leader_epoch}")
                made.leader_epochs[index] = partition.leader_epoch
        for name in self.gone:
            if name in names:
                self._seen.wrong(f"topic {name} was deleted, and is there")
