"""How requests of transactions are answered, one by one. The transcript is what Apache Kafka 4.3 answers.

HEADRACE_COMPAT_BOOTSTRAP=host:port asks another node than ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from tests.broker import transactional
from tests.broker.nodes import ask, create
from tests.broker.transactional import Identity, describe, settled
from tests.compat.conftest import new_name

TRANSCRIPT = """
before version 2: end of nothing: INVALID_TXN_STATE INVALID_TXN_STATE
before version 2: add what is not there: OPERATION_NOT_ATTEMPTED UNKNOWN_TOPIC_OR_PARTITION TOPIC_AUTHORIZATION_FAILED
before version 2: produce to what was not added: INVALID_TXN_STATE TRANSACTION_ABORTABLE
before version 2: add and produce: NONE NONE
before version 2: end of another id, of another epoch: INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED
before version 2: commit, again, then abort: NONE NONE INVALID_TXN_STATE
before version 2: produce after the end: INVALID_TXN_STATE
before version 2: words for a zombie, by version: INVALID_PRODUCER_EPOCH PRODUCER_FENCED
version 2: commit of nothing: INVALID_TXN_STATE
version 2: abort of nothing: epoch 1
version 2: the same again, commit and abort: INVALID_TXN_STATE epoch 1
version 2: a first batch with sequence 1, with 0: OUT_OF_ORDER_SEQUENCE_NUMBER NONE
version 2: the end before again, while a transaction is open: PRODUCER_FENCED PRODUCER_FENCED
version 2: commit, again, then abort: epoch 2 epoch 2 INVALID_TXN_STATE
version 2: produce after the end: INVALID_PRODUCER_EPOCH
version 2: produce, abort, again, then commit: NONE epoch 3 epoch 3 INVALID_TXN_STATE
start: go on, again, with an epoch of the future, with another id: epoch 1 epoch 1 PRODUCER_FENCED PRODUCER_FENCED
start: the same with an old version: INVALID_PRODUCER_EPOCH
start: over an open transaction: epoch 4
start: the zombie ends, and produces: PRODUCER_FENCED INVALID_PRODUCER_EPOCH
start: time-outs of -1 and too long: INVALID_TRANSACTION_TIMEOUT INVALID_TRANSACTION_TIMEOUT
start: without a name: INVALID_REQUEST
describe: what is not there, what has no name: TRANSACTIONAL_ID_NOT_FOUND INVALID_REQUEST
produce: without its transactional id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""

_NOT_YET = (Error.CONCURRENT_TRANSACTIONS, Error.NOT_ENOUGH_REPLICAS, Error.NOT_COORDINATOR)
_NOT_READY = (*_NOT_YET, Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS)


async def patiently(send: Callable[[], Awaitable[Any]], error_of: Callable[[Any], Error]) -> Any:
    """Kafka says CONCURRENT_TRANSACTIONS where we wait, and clients ask again."""
    while error_of(answer := await send()) in _NOT_READY:
        await asyncio.sleep(0.02)
    return answer


class Talk:
    def __init__(self, peer: Peer, topic: str) -> None:
        self.peer = peer
        self.topic = topic
        self.lines: list[str] = []

    def say(self, what: str, *answers: str) -> None:
        self.lines.append(f"{what}: {' '.join(answers)}")

    async def init(self, name: str, **more: Any) -> tuple[Identity, str]:
        response = await patiently(
            lambda: transactional.init(self.peer, name, **more), lambda found: Error.of(found.error_code)
        )
        return (response.producer_id, response.producer_epoch), told(response)

    async def add(self, name: str, who: Identity, *partitions: tuple[str, int], version: int = 3) -> list[str]:
        found: list[Error] = await patiently(
            lambda: transactional.add(self.peer, who, *partitions, transactional_id=name, version=version),
            lambda errors: errors[0],
        )
        return [error.name for error in found]

    async def produce(self, name: str | None, who: Identity, sequence: int = 0, version: int = 12) -> str:
        found: Error = await patiently(
            lambda: transactional.produce(
                self.peer, who, b"v", sequence, topic=self.topic, transactional_id=name, version=version
            ),
            lambda error: error,
        )
        return found.name

    async def end(self, name: str, who: Identity, *, commits: bool, version: int = 5) -> str:
        response = await patiently(
            lambda: transactional.end(self.peer, who, commits=commits, transactional_id=name, version=version),
            lambda found: Error.of(found.error_code),
        )
        return told(response)

    async def both(self, name: str, who: Identity, version: int = 5) -> list[str]:
        return [await self.end(name, who, commits=commits, version=version) for commits in (True, False)]


def told(response: Any) -> str:
    if response.error_code or response.producer_id < 0:
        return Error.of(response.error_code).name
    return f"epoch {response.producer_epoch}"


async def before_version_2(talk: Talk) -> None:
    name, topic = new_name(), talk.topic
    who, _ = await talk.init(name)
    what = "before version 2"
    talk.say(f"{what}: end of nothing", *await talk.both(name, who, 4))
    errors = await talk.add(name, who, (topic, 0), (topic, 9), ("__transaction_state", 0))
    talk.say(f"{what}: add what is not there", *errors)
    unadded = [await talk.produce(name, who, version=version) for version in (9, 11)]
    talk.say(f"{what}: produce to what was not added", *unadded)
    added = await talk.add(name, who, (topic, 0))
    talk.say(f"{what}: add and produce", *added, await talk.produce(name, who, version=9))
    others = [await talk.end(name, other, commits=True, version=4) for other in ((who[0] + 10**6, 0), (who[0], 5))]
    talk.say(f"{what}: end of another id, of another epoch", *others)
    first = await talk.end(name, who, commits=True, version=4)
    await settled(talk.peer, name)
    talk.say(f"{what}: commit, again, then abort", first, *await talk.both(name, who, 4))
    talk.say(f"{what}: produce after the end", await talk.produce(name, who, 1, version=9))
    zombie = [await talk.end(name, (who[0], 5), commits=True, version=version) for version in (1, 2)]
    talk.say(f"{what}: words for a zombie, by version", *zombie)


async def version_2(talk: Talk) -> None:
    name = new_name()
    who, _ = await talk.init(name)
    talk.say("version 2: commit of nothing", await talk.end(name, who, commits=True))
    talk.say("version 2: abort of nothing", await talk.end(name, who, commits=False))
    await settled(talk.peer, name)
    talk.say("version 2: the same again, commit and abort", *await talk.both(name, who))
    who = (who[0], who[1] + 1)
    batches = [await talk.produce(name, who, sequence) for sequence in (1, 0)]
    talk.say("version 2: a first batch with sequence 1, with 0", *batches)
    before = await talk.both(name, (who[0], who[1] - 1))
    talk.say("version 2: the end before again, while a transaction is open", *before)
    first = await talk.end(name, who, commits=True)
    await settled(talk.peer, name)
    talk.say("version 2: commit, again, then abort", first, *await talk.both(name, who))
    talk.say("version 2: produce after the end", await talk.produce(name, who, 1))
    who = (who[0], who[1] + 1)
    batch, first = await talk.produce(name, who), await talk.end(name, who, commits=False)
    await settled(talk.peer, name)
    again = [await talk.end(name, who, commits=commits) for commits in (False, True)]
    talk.say("version 2: produce, abort, again, then commit", batch, first, *again)


async def starting(talk: Talk) -> None:
    name = new_name()
    who, _ = await talk.init(name)
    claims = (who, who, (who[0], 5), (who[0] + 10**6, 0))
    went_on = [(await talk.init(name, producer_id=claim[0], producer_epoch=claim[1]))[1] for claim in claims]
    talk.say("start: go on, again, with an epoch of the future, with another id", *went_on)
    _, old = await talk.init(name, version=3, producer_id=who[0], producer_epoch=77)
    talk.say("start: the same with an old version", old)
    zombie, _ = await talk.init(name)
    await talk.produce(name, zombie)
    _, over = await talk.init(name)
    talk.say("start: over an open transaction", over)
    ended = await talk.end(name, zombie, commits=True)
    talk.say("start: the zombie ends, and produces", ended, await talk.produce(name, zombie, 1))
    limits = [(await talk.init(new_name(), transaction_timeout_ms=limit))[1] for limit in (-1, 900_001)]
    talk.say("start: time-outs of -1 and too long", *limits)
    nameless = await ask(talk.peer, m.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4)
    talk.say("start: without a name", told(nameless))
    described = [Error.of((await describe(talk.peer, asked)).error_code).name for asked in (new_name(), "")]
    talk.say("describe: what is not there, what has no name", *described)
    talk.say("produce: without its transactional id", await talk.produce(None, zombie, 1))


def test_transactions_are_answered_as_kafka_answers_them(cluster: str) -> None:
    async def check() -> None:
        host, _, port = cluster.rpartition(":")
        peer = Peer(host, int(port), "compat")
        await peer.connect(30)
        try:
            topic = new_name()
            await create(peer, topic)
            talk = Talk(peer, topic)
            for part in (before_version_2, version_2, starting):
                await part(talk)
        finally:
            peer.close()
        assert talk.lines == TRANSCRIPT.strip().splitlines()

    asyncio.run(asyncio.wait_for(check(), 120))
