"""Exactly once: a transform that is killed at random, as its node is, leaves each record once (read_committed)."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import consume
from tests.compat.conftest import new_name
from tests.compat.process import Process

COUNT = 3000
ROOT = Path(__file__).parents[2]


class Supervised:
    """The transform, started again whenever it ends before it is done."""

    def __init__(self, node: Process, *names: str) -> None:
        self._node, self._names = node, names
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.compat.transform", self._node.bootstrap, *self._names, str(COUNT)]
        self._child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def wait_for(self, count: int) -> bool:
        """Until it has committed so many transactions more; False when it was done before."""
        assert self._child.stdout is not None
        while count:
            line = self._child.stdout.readline()
            if line:
                count -= line.startswith("moved")
            elif self._child.wait(30) == 0:
                return False
            else:
                self._start()
        return True

    def kill(self) -> None:
        self._child.kill()
        self._child.wait(30)
        self._start()


def test_each_record_is_transformed_once_whoever_is_killed(node: Process) -> None:
    node.stop()
    node.arguments = ("--set", "group.initial.rebalance.delay.ms=0")
    node.start()
    chance = random.Random(7)
    source, target, names = new_name(), new_name(), (new_name(), new_name())
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for made in admin.create_topics([NewTopic(source, 2, 1), NewTopic(target, 2, 1)]).values():
        made.result(30)
    feeder = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(COUNT):
        feeder.produce(source, b"%d" % number, partition=number % 2)
    assert feeder.flush(30) == 0
    transform = Supervised(node, *names, source, target)
    for victim in ("transform", "node", "transform", "node", "transform"):
        assert transform.wait_for(chance.randint(3, 20)), "it was done before it was killed"
        time.sleep(chance.random() * 0.02)  # anywhere in a transaction
        if victim == "node":
            node.kill()
            node.start()
        else:
            transform.kill()
    assert not transform.wait_for(COUNT), "it goes on after everything is there"
    for partition in range(2):
        expected = [b"<%d>" % number for number in range(partition, COUNT, 2)]
        found = consume(node.bootstrap, target, len(expected), partition, isolation_level="read_committed")
        assert [message.value() for message in found] == expected
    sentinel = transactional_end(node, target)
    for partition in range(2):
        last = consume(node.bootstrap, target, COUNT // 2 + 1, partition, isolation_level="read_committed")[-1]
        assert last.value() == sentinel, "and nothing more"


def transactional_end(node: Process, topic: str) -> bytes:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for partition in range(2):
        producer.produce(topic, b"the end", partition=partition)
    assert producer.flush(30) == 0
    return b"the end"
