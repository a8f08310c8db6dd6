"""The scripts of classic groups, asked of a real broker over the wire, and what differs from what is written in them:

    python -m tests.compat.groups_beside_kafka 127.0.0.1:9092 [script ...]

Against Apache Kafka it shows that the scripts tell what Kafka does. Sections run side by side, each with a group of its
own and with real waits. Left out is what a client can't see or do from outside: the log, fail-overs, settings.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from tests.coordinator.classic_script import GROUP, ClassicScript, Client

SCRIPTS = Path(__file__).parents[1] / "coordinator" / "scripts" / "classic"
QUIET_S = 0.4
TOPIC = "groups-beside-kafka"
OMITTED = ("fail-over", "settings")
WAIT_MAX_MS = 15_000


class WirePart:
    """Stands in for the classic part of a shard: it keeps the request, and the script's reply with it."""

    def __init__(self, asked: list[tuple[Any, int, Any]]) -> None:
        self._asked = asked

    def join(self, body: Any, version: int, client_id: str, host: str, reply: Any, now_ms: int) -> None:
        self._asked.append((body, version, reply))

    def sync(self, body: Any, reply: Any, now_ms: int) -> None:
        says_nothing = body.protocol_type is None and body.protocol_name is None
        self._asked.append((body, 4 if says_nothing else 5, reply))

    def heartbeat(self, body: Any, reply: Any, now_ms: int) -> None:
        self._asked.append((body, 4, reply))

    def is_alive(self, body: Any, now_ms: int) -> bool:
        return False

    def leave(self, body: Any, version: int, reply: Any, now_ms: int) -> None:
        self._asked.append((body, version, reply))


class WireRuntime:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, int, Any]] = []
        self.now_ms = 0
        self.classic = WirePart(self.asked)

    @property
    def shard(self) -> WireRuntime:
        return self

    def ask(self, operation: Any, reply: Any) -> None:
        operation(self, 0)


class WireScript(ClassicScript):
    def __init__(self, host: str, port: int, group: str) -> None:
        super().__init__()
        self.wire = WireRuntime()
        self._runtime: Any = self.wire
        self._address = (host, port)
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []

    async def settle(self) -> None:
        """Sends what is to be asked, each on a connection of its own, until nothing more comes back."""
        while self.wire.asked:
            asked, self.wire.asked[:] = list(self.wire.asked), []
            for body, version, reply in asked:
                body.group_id = self._group
                peer = Peer(*self._address, "a-script")
                await peer.connect(30)
                self._tasks.append(asyncio.create_task(self._ask(peer, body, version, reply)))
            await asyncio.sleep(QUIET_S)

    async def _ask(self, peer: Peer, body: Any, version: int, reply: Any) -> None:
        try:
            reply(await peer.send(body, version))
        finally:
            peer.close()

    async def run(self, line: str) -> list[str]:
        name, *words = line.split()
        if name == "wait":
            await asyncio.sleep(int(words[0]) / 1000)
        elif name == "commit":
            await self._commit(line)
        elif name == "show":
            await self._show()
        else:
            self.command_only(line)
        await self.settle()
        out, self.out = self.out, []
        return [self._named(line) for line in out]

    def command_only(self, line: str) -> None:
        self.out = self.command(line)

    async def _one(self, body: Any, version: int) -> Any:
        peer = Peer(*self._address, "a-script")
        await peer.connect(30)
        try:
            return await peer.call(body, version, 30)
        finally:
            peer.close()

    async def _commit(self, line: str) -> None:
        name = line.split()[1]
        named = dict(word.split("=") for word in line.split()[2:])
        if named.get("in_transaction") == "yes":
            return
        client: Client = self._client(name)
        kind = m.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        body = kind(
            group_id=self._group,
            generation_id_or_member_epoch=int(named.get("generation", client.generation)),
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            topics=[kind.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        response = await self._one(body, 9)
        self._hear(client, "commit", Error(response.topics[0].partitions[0].error_code).name)

    async def _show(self) -> None:
        described = (await self._one(m.DescribeGroupsRequest(groups=[self._group]), 5)).groups[0]
        members = sorted(self._name(member.member_id) for member in described.members)
        self.out.append("  ".join([described.group_state, *members]))


def comparable(line: str) -> str:
    """Of what a group looks like, what can be seen from outside; of members, who they are and not in which order."""
    line = line.strip()
    if line == "no group":
        return "Dead"
    first, *rest = line.split("  ")
    if rest or first in ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead"):
        seen = sorted(word.strip("*") for word in rest if not word.startswith("generation") and "pending" not in word)
        return "  ".join([first, *seen])
    if "leads" in line:
        start, _, members = line.partition("leads ")
        who, comma, after = members.partition(",")
        return f"{start}leads {' '.join(sorted(who.split()))}{comma}{after}"
    return line


def sections_of(text: str) -> list[list[tuple[str, list[str]]]]:
    sections: list[list[tuple[str, list[str]]]] = [[]]
    for line in text.splitlines():
        if line.startswith("==="):
            sections.append([])
        elif line.startswith("  "):
            sections[-1][-1][1].append(line)
        elif line and not line.startswith("#"):
            sections[-1].append((line, []))
    return sections


def is_possible(section: list[tuple[str, list[str]]]) -> bool:
    return not any(
        line.startswith(OMITTED) or (line.startswith("wait") and int(line.split()[1]) > WAIT_MAX_MS)
        for line, _ in section
    )


async def compare(address: tuple[str, int], name: str, number: int, section: Any, suffix: str) -> list[str]:
    script = WireScript(*address, f"{name}-{number}-{suffix}")
    found = []
    for line, written in section:
        if line.startswith("log") or "in_transaction" in line:
            continue
        told = await script.run(line)
        expected, got = sorted(map(comparable, written)), sorted(map(comparable, told))
        if expected != got:
            found.append(f"{name} section {number}, {line!r}: written {expected}, told {got}")
    return found


async def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    names = sys.argv[2:] or [path.stem for path in sorted(SCRIPTS.glob("*.txt"))]
    address = (host, int(port))
    script = WireScript(*address, GROUP)
    topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    await script._one(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    while (await script._one(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0].error_code:
        await asyncio.sleep(0.2)
    await asyncio.sleep(5)
    suffix = str(asyncio.get_running_loop().time())
    work = []
    for name in names:
        for number, section in enumerate(sections_of((SCRIPTS / f"{name}.txt").read_text())):
            if is_possible(section):
                work.append(compare(address, name, number, section, suffix))
            else:
                print(f"{name} section {number} is left out")
    for found in await asyncio.gather(*work):
        for line in found:
            print(line)


if __name__ == "__main__":
    asyncio.run(main())
