"""The embedded broker, used as a test of a Python team would: with a client that knows nothing of it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.errors import HeadraceError
from headrace.testing import Cluster

MODES = pytest.mark.parametrize("in_process", [True, False], ids=["thread", "child"])


def produce(cluster: Cluster, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    failures: list[object] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, message: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None]


def first(cluster: Cluster, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "a", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        value = message.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


@MODES
def test_a_client_produces_and_consumes_and_a_restart_keeps_data_and_port(in_process: bool) -> None:
    with Cluster(in_process=in_process) as cluster:
        topic = cluster.create_topic(partitions=2)
        produce(cluster, topic, b"hello")
        assert first(cluster, topic) == b"hello"
        before, folder = cluster.bootstrap, cluster.data
        cluster.restart()
        assert cluster.bootstrap == before
        assert first(cluster, topic) == b"hello"
        cluster.delete_topic(topic)
    assert not folder.exists()


@pytest.mark.parametrize("is_on", [True, False])
def test_a_start_leaves_the_garbage_collector_as_it_was(is_on: bool, tmp_path: Path) -> None:
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with Cluster():
            assert gc.isenabled() == is_on
        (tmp_path / "file").touch()
        with pytest.raises(HeadraceError):
            Cluster(data=tmp_path / "file").start()
        assert gc.isenabled() == is_on
    finally:
        (gc.enable if was_on else gc.disable)()


def test_nobody_waits_for_a_search_for_garbage_among_what_a_start_has_made() -> None:
    """In a process of its own, which has no more of it than a cluster brings."""
    program = """
import gc
import headrace.testing.uncollected

gc.collect()  # of what was left by compiling that, where bytecode is not kept
searches = []
gc.callbacks.append(lambda phase, found: searches.append(found["generation"]))
from headrace.testing import Cluster

cluster = Cluster().start()
print(len(searches), gc.get_freeze_count())
gc.freeze()
frozen = gc.get_freeze_count()
with Cluster():
    print(gc.get_freeze_count() > 0.9 * frozen)
cluster.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "True"]


@pytest.mark.parametrize("named", ["gone", "."])
def test_its_folder_is_made_where_one_can_be_made_and_stays_found(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", named)
    with Cluster() as cluster:
        monkeypatch.chdir("/")
        folder = cluster.data
        assert folder.exists()
    assert not folder.exists()
    assert not list(tmp_path.iterdir())


def test_two_clusters_live_side_by_side_in_one_process() -> None:
    with Cluster() as one, Cluster() as other:
        one.create_topic("same")
        other.create_topic("same")
        produce(one, "same", b"one")
        produce(other, "same", b"other")
        assert (first(one, "same"), first(other, "same")) == (b"one", b"other")


def test_it_is_an_async_context_manager_too_and_its_helpers_work_beside_a_running_loop() -> None:
    async def scenario() -> str:
        async with Cluster() as cluster:
            return cluster.create_topic(retention_ms=1000)

    assert asyncio.run(scenario()).startswith("topic-")


def test_a_thread_leaves_signals_and_limits_of_the_process_alone() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)}
    threads = threading.active_count()
    with Cluster():
        assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert threading.active_count() == threads


def test_a_killed_child_starts_again_on_what_it_left() -> None:
    with Cluster(in_process=False) as cluster:
        topic = cluster.create_topic()
        produce(cluster, topic, b"before")
        cluster.kill()
        cluster.start()
        assert first(cluster, topic) == b"before"


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    program = (
        "from headrace.testing import Cluster\n"
        f"cluster = Cluster(in_process=False, data={str(tmp_path / 'data')!r}).start()\n"
        "print(cluster._running.pid, flush=True)\n"
        "import os; os._exit(9)\n"
    )
    parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert parent.returncode == 9, parent.stderr
    pid = int(parent.stdout)
    wait = threading.Event()
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().split()[2] == "Z":
            break
        wait.wait(0.1)
    else:
        pytest.fail("the child lives on")


@MODES
def test_a_setting_that_is_none_is_refused_with_a_sentence_and_leaves_nothing(in_process: bool) -> None:
    cluster = Cluster(in_process=in_process, settings={"num.partitons": 3})
    with pytest.raises(HeadraceError, match="did you mean num.partitions"):
        cluster.start()
    with pytest.raises(HeadraceError, match="start it"):
        _ = cluster.bootstrap


@MODES
def test_a_folder_in_use_and_a_second_start_are_refused_with_a_sentence(in_process: bool, tmp_path: Path) -> None:
    with Cluster(in_process=in_process, data=tmp_path, fsync=True) as cluster:
        with pytest.raises(HeadraceError, match="in use"):
            Cluster(data=tmp_path).start()
        with pytest.raises(HeadraceError, match="runs already"):
            cluster.start()
        if in_process:
            with pytest.raises(HeadraceError, match="in_process=False"):
                cluster.kill()
    assert (tmp_path / "meta.properties").exists(), "a folder that was given is kept"


def test_what_a_node_imports_is_what_it_needs() -> None:
    """The first cluster of a process is to be ready at once, and each of these takes 5 to 80 ms."""
    program = "import sys, headrace.testing.thread; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    dear = {"typer", "rich", "prometheus_client", "crc32c", "re2", "html", "email", "importlib.metadata", "zipfile"}
    assert not dear & set(imported)
