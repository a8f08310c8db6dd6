"""kcat of Debian: librdkafka 2.0, years old, as many programs in the field carry it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.compat.confluent import TIMEOUT_S
from tests.compat.conftest import MakeTopic

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt install kcat)")


def kcat(*arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["kcat", *arguments], input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back(cluster: str, topic: str, codec: str) -> None:
    lines = "".join(f"key{number}:value {number}\n" for number in range(100))
    kcat("-P", "-b", cluster, "-t", topic, "-K", ":", "-z", codec, given=lines)
    assert kcat("-C", "-b", cluster, "-t", topic, "-K", ":", "-e", "-q") == lines


@pytest.mark.parametrize("setting", ["acks=0", "acks=1", "acks=all", "enable.idempotence=true"])
def test_every_acknowledgement_level(cluster: str, topic: str, setting: str) -> None:
    kcat("-P", "-b", cluster, "-t", topic, "-X", setting, given="one\ntwo\n")
    assert kcat("-C", "-b", cluster, "-t", topic, "-e", "-q", "-c", "2") == "one\ntwo\n"


def test_from_everywhere(cluster: str, topic: str) -> None:
    kcat("-P", "-b", cluster, "-t", topic, "-H", "a=b", given="".join(f"{number}\n" for number in range(10)))
    read = ("-C", "-b", cluster, "-t", topic, "-e", "-q")
    assert kcat(*read, "-o", "7") == "7\n8\n9\n"
    assert kcat(*read, "-o", "-2") == "8\n9\n"
    assert kcat(*read, "-o", "end") == ""
    assert kcat(*read, "-f", "%o %h\n", "-o", "9") == "9 a=b\n"
    assert kcat("-Q", "-b", cluster, "-t", f"{topic}:0:-1") == f"{topic} [0] offset 10\n"


def test_the_metadata_lists_topics(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    assert f'topic "{topic}" with 3 partitions' in kcat("-L", "-b", cluster)
