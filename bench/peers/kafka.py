"""Apache Kafka as the peer: fetched by name with Maven, started on 127.0.0.1, stopped by its pid.

    python bench/peers/kafka.py get                       fetch the jars
    python bench/peers/kafka.py up DIR [k=v ...]          format and start a combined node; prints host:port
    python bench/peers/kafka.py down DIR                  stop what `up` started in DIR, cleanly
    python bench/peers/kafka.py tool CLASS ARGS...        run one of Kafka's own tools

The jars are kept in $KAFKA_HOME, or in a cache folder of the user. Needs Java 17 or newer, and Maven for `get`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

VERSION: Final = "4.3.0"
START_TIMEOUT_S: Final = 120
STOP_TIMEOUT_S: Final = 60

POM: Final = """\
<project><modelVersion>4.0.0</modelVersion><groupId>peer</groupId><artifactId>kafka-peer</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
</dependencies></project>
"""

JVM_OPTIONS: Final = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class PeerError(Exception):
    """Kafka could not be fetched or started; the text says why."""


def home() -> Path:
    default = Path.home() / ".cache" / "headrace" / f"kafka-{VERSION}"
    return Path(os.environ.get("KAFKA_HOME", default))


def get(version: str = VERSION) -> Path:
    """The folder of the jars, fetched if they are not there."""
    libraries = home() / "libs"
    if not any(libraries.glob("kafka_*.jar")):
        home().mkdir(parents=True, exist_ok=True)
        pom = home() / "pom.xml"
        pom.write_text(POM.format(version=version))
        command = ["mvn", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise PeerError(f"Maven could not fetch Kafka {version} ({error}); is `mvn` installed?") from error
    return libraries


def java(main_class: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    return ["java", *options, "-cp", f"{get()}/*", main_class, *arguments]


def tool(main_class: str, *arguments: str, check: bool = True) -> str:
    """Runs one of Kafka's tools; returns what it printed, both streams."""
    done = subprocess.run(java(main_class, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        raise PeerError(f"{main_class} ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


class Kafka:
    """One combined node in a folder of its own: `data` holds the partitions."""

    def __init__(self, folder: Path, port: int = 0, settings: Sequence[str] = ()) -> None:
        self.folder = folder.resolve()
        self.port = port or free_port()
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self.began_s = 0.0
        """When the process was started, by the monotonic clock."""

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Formats the folder on the first start; returns when the node accepts connections."""
        properties = self.folder / "server.properties"
        if not properties.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            properties.write_text(self._properties())
            cluster_id = tool("kafka.tools.StorageTool", "random-uuid").split()[-1]
            tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))
        self.began_s = time.monotonic()
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                java("kafka.Kafka", str(properties), options=JVM_OPTIONS), stdout=log, stderr=log, cwd=self.folder
            )
        (self.folder / "pid").write_text(str(self.process.pid))
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise PeerError(f"Kafka ended at its start; {self.folder}/server.log says why.")
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise PeerError(f"Kafka did not start within {START_TIMEOUT_S} s; {self.folder}/server.log says why.")

    def stop(self) -> None:
        """SIGTERM, so that Kafka flushes, trims its indexes and writes its clean-shutdown marker."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(STOP_TIMEOUT_S)
        self.process = None

    def _properties(self) -> str:
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{self.port + 1}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.data}",
            "num.partitions=1",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            *self.settings,
        ]
        return "\n".join(lines) + "\n"


def free_port() -> int:
    """A port that is free together with the next one, which the controller's listener takes."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def main(arguments: Sequence[str]) -> int:
    match list(arguments):
        case ["get"]:
            print(get())
        case ["up", folder, *settings]:
            node = Kafka(Path(folder), settings=settings)
            node.start()
            print(node.bootstrap)
        case ["down", folder]:
            os.kill(int((Path(folder) / "pid").read_text()), signal.SIGTERM)
        case ["tool", main_class, *rest]:
            print(tool(main_class, *rest, check=False), end="")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
