"""The programs: Kafka's tools under the names of their scripts, and kcat; which versions, and what is missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from enum import Enum
from typing import Final

from bench.peers import kafka
from headrace import __version__
from headrace.errors import HeadraceError

JAVA_LEAST: Final = 17
# Most of the life of such a program is its start.
JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256M")
KCAT: Final = "kcat"


class Where(Enum):
    """Where on its command line a program takes the node's address."""

    FIRST = "first"
    LAST = "last"
    NOWHERE = "nowhere"
    POSITION = "position"
    """A first argument without a name."""


_TOOLS: Final = "org.apache.kafka.tools."
CLASSES: Final = {
    "kafka-acls": (_TOOLS + "AclCommand", Where.FIRST),
    "kafka-broker-api-versions": (_TOOLS + "BrokerApiVersionsCommand", Where.FIRST),
    "kafka-client-metrics": (_TOOLS + "ClientMetricsCommand", Where.FIRST),
    "kafka-cluster": (_TOOLS + "ClusterTool", Where.LAST),
    "kafka-configs": ("kafka.admin.ConfigCommand", Where.FIRST),
    "kafka-console-consumer": (_TOOLS + "consumer.ConsoleConsumer", Where.FIRST),
    "kafka-console-producer": (_TOOLS + "ConsoleProducer", Where.FIRST),
    "kafka-consumer-groups": (_TOOLS + "consumer.group.ConsumerGroupCommand", Where.FIRST),
    "kafka-consumer-perf-test": (_TOOLS + "ConsumerPerformance", Where.FIRST),
    "kafka-delete-records": (_TOOLS + "DeleteRecordsCommand", Where.FIRST),
    "kafka-dump-log": (_TOOLS + "DumpLogSegments", Where.NOWHERE),
    "kafka-e2e-latency": (_TOOLS + "EndToEndLatency", Where.POSITION),
    "kafka-features": (_TOOLS + "FeatureCommand", Where.FIRST),
    "kafka-get-offsets": (_TOOLS + "GetOffsetShell", Where.FIRST),
    "kafka-groups": (_TOOLS + "GroupsCommand", Where.FIRST),
    "kafka-leader-election": (_TOOLS + "LeaderElectionCommand", Where.FIRST),
    "kafka-log-dirs": (_TOOLS + "LogDirsCommand", Where.FIRST),
    "kafka-metadata-quorum": (_TOOLS + "MetadataQuorumCommand", Where.FIRST),
    "kafka-producer-perf-test": (_TOOLS + "ProducerPerformance", Where.FIRST),
    "kafka-reassign-partitions": (_TOOLS + "reassign.ReassignPartitionsCommand", Where.FIRST),
    "kafka-storage": ("kafka.tools.StorageTool", Where.NOWHERE),
    "kafka-topics": (_TOOLS + "TopicCommand", Where.FIRST),
    "kafka-transactions": (_TOOLS + "TransactionsCommand", Where.FIRST),
    "kafka-verifiable-consumer": (_TOOLS + "VerifiableConsumer", Where.FIRST),
    "kafka-verifiable-producer": (_TOOLS + "VerifiableProducer", Where.FIRST),
}


def command(words: list[str], bootstrap: str) -> list[str]:
    """What to run for a line such as `kafka-topics --list`."""
    program, *rest = words
    if program == KCAT:
        return [KCAT, "-b", bootstrap, *rest]
    main_class, where = CLASSES[program]
    address = ["--bootstrap-server", bootstrap]
    match where:
        case Where.FIRST:
            rest = [*address, *rest]
        case Where.LAST:
            rest = [*rest, *address]
        case Where.POSITION:
            rest = [bootstrap, *rest]
    return kafka.java(main_class, *rest, options=JVM_OPTIONS)


def require() -> None:
    """Fetches Kafka's tools on the first run; says what to install where that can't be."""
    java = java_version()
    if java is None:
        raise HeadraceError(
            f"Java is missing, and Kafka's tools need it; install Java {JAVA_LEAST} or newer, "
            "as with: apt install default-jre-headless"
        )
    if int(java.split(".")[0]) < JAVA_LEAST:
        raise HeadraceError(f"Java {java} is too old for Kafka's tools; install Java {JAVA_LEAST} or newer.")
    has_jars = any((kafka.home() / "libs").glob("kafka_*.jar"))
    if not has_jars and shutil.which("mvn") is None:
        raise HeadraceError(
            f"Maven is missing, and it fetches Kafka's tools; install it, as with: apt install maven; "
            f"or set KAFKA_HOME to a folder whose libs/ holds the jars of Kafka {kafka.VERSION}."
        )
    if not has_jars:
        print(f"Maven fetches Kafka {kafka.VERSION}, once, into {kafka.home()}.", flush=True)
    try:
        kafka.get()
    except kafka.PeerError as error:
        raise HeadraceError(str(error)) from error


def java_version() -> str | None:
    if shutil.which("java") is None:
        return None
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found[1] if found and done.returncode == 0 else None


def tools_version() -> str:
    """Of the jars that are there, which may be others than those that would be fetched."""
    for jar in (kafka.home() / "libs").glob("kafka-tools-[0-9]*.jar"):
        return jar.stem.removeprefix("kafka-tools-")
    return kafka.VERSION


def kcat_version() -> str | None:
    """None where it is not installed."""
    if shutil.which(KCAT) is None:
        return None
    said = subprocess.run([KCAT, "-V"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\S+).*librdkafka (\S+)", said, re.DOTALL)
    return f"{found[1]} (librdkafka {found[2]})" if found else "of an unknown version"


def conditions() -> list[tuple[str, str]]:
    """What was run with what."""
    kcat = kcat_version()
    return [
        ("Headrace", f"{__version__}, with Python {platform.python_version()}"),
        ("Kafka's tools", f"{tools_version()}, with Java {java_version()}"),
        ("kcat", kcat or "not installed"),
        ("machine", f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores; all on 127.0.0.1"),
    ]
