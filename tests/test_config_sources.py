"""Where a node's settings come from: properties of Kafka's, TOML, the environment, and which of them wins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import NodeConfig
from headrace.config.properties import parse_properties
from headrace.config.sources import Settings, parse_toml
from headrace.errors import HeadraceError

COMBINED = rb"""
############################# Server Basics #############################
# as Kafka's own file for a node that is both
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=16
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=3
num.recovery.threads.per.data.dir=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=24
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
my.own.plugin.setting=5
"""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a = b ", {"a": "b "}),
        (b"  a:b\n\tc d\r\ne\r! no\n# no", {"a": "b", "c": "d", "e": ""}),
        (b"a==b\nc= :d\ne : = f", {"a": "=b", "c": ":d", "e": "= f"}),
        (b"a=b\\\n   c\nd=e", {"a": "bc", "d": "e"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a=b\\\n# not a comment\nc=d", {"a": "b# not a comment", "c": "d"}),
        (b"a=b\\", {"a": "b"}),
        (b"a\\=b\\ c\\:d=e", {"a=b c:d": "e"}),
        (b"a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        (b"a=\\u0041\\u00e9\\uD83D\\uDE00", {"a": "A\u00e9\U0001f600"}),
        (b"a=\xe9", {"a": "\u00e9"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"=b", {"": "b"}),
        (b"", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(content: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(content) == expected


@given(content=st.binary(max_size=200))
def test_any_bytes_are_properties_or_are_refused_in_a_sentence(content: bytes) -> None:
    try:
        found = parse_properties(content)
    except HeadraceError as error:
        assert "hexadecimal" in str(error) or "no properties file" in str(error)
    else:
        assert all(isinstance(text, str) for pair in found.items() for text in pair)


def test_a_file_of_kafkas_is_taken_and_what_is_not_is_told() -> None:
    settings = Settings()
    settings.add_properties(COMBINED, "server.properties")
    settings.tell_stored()
    config = NodeConfig.parse(settings.texts)
    assert (config.topics.num_partitions, config.log.retention_ms) == (3, 24 * 3_600_000)
    assert config.listener.listeners == ("PLAINTEXT://127.0.0.1:0",)
    assert config.storage.log_dirs == ("/tmp/kraft-combined-logs",)
    told = "\n".join(settings.told)
    assert "zookeeper.connect is left out: there is no ZooKeeper" in told
    assert "my.own.plugin.setting is left out: Kafka 4 has no such setting." in told
    assert "listeners CONTROLLER://:9093 is left out" in told
    assert "num.io.threads has no effect: a node is one process" in told
    assert "share.coordinator.state.topic.replication.factor has no effect: there are no share groups yet" in told
    assert "num.network.threads" not in told  # it has the default
    assert all(line.startswith("server.properties: ") for line in settings.told)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "there is no security yet"),
        (b"ssl.keystore.location=/a", "there is no security yet"),
        (b"remote.log.storage.system.enable=true", "there is no tiered storage yet"),
        (b"process.roles=controller", "process.roles must stay broker,controller"),
        (b"num.partitions=many", "num.partitions must be a whole number"),
        (b"num.partitions=\\u00", "four hexadecimal digits"),
        (b"num.partitions=3\n\x7fELF\x02\nmore\n", "line 2 holds the byte 0x7f, so this is no properties file."),
    ],
)
def test_a_file_that_asks_for_a_promise_that_can_not_be_kept_is_refused(line: bytes, sentence: str) -> None:
    with pytest.raises(HeadraceError, match=f"(?s)f.properties: .*{sentence}"):
        Settings().add_properties(line, "f.properties")


def test_toml_has_tables_dotted_names_and_quoted_ones() -> None:
    content = b"""
    num.partitions = 4
    "max.connections" = 10
    "max.connections.per.ip" = 5
    auto.create.topics.enable = false
    [log]
    dirs = ["/a", "/b"]
    retention.hours = 24
    [log.cleaner]
    min.cleanable.ratio = 0.25
    """
    texts = parse_toml(content, "a.toml")
    config = NodeConfig.parse(texts)
    assert config.storage.log_dirs == ("/a", "/b")
    assert (config.topics.num_partitions, config.topics.auto_create_topics_enable) == (4, False)
    assert (config.listener.max_connections, config.listener.max_connections_per_ip) == (10, 5)
    assert (config.log.retention_ms, config.log.min_cleanable_dirty_ratio) == (24 * 3_600_000, 0.25)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a = ", "a.toml is no TOML: "),
        (b"\xff", "a.toml is no TOML: "),
        (b"max.connections = 1\nmax.connections.per.ip = 2", "a name that begins like another one stands in quotes"),
        (b"num.partitions = 1979-05-27", "num.partitions must be a text, a number, true, false or a list"),
        (b'log.dirs = ["a,b"]', "log.dirs must be a text"),
    ],
)
def test_toml_that_is_none_is_refused_in_a_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(HeadraceError, match=sentence):
        parse_toml(content, "a.toml")


def test_the_environment_names_settings_and_tells_what_is_none() -> None:
    settings = Settings()
    settings.add_environment(
        {"HEADRACE_NUM_PARTITIONS": "7", "HEADRACE_NUM_PARTITION": "8", "HEADRACE_TRACEBACK": "1", "HOME": "/"}
    )
    assert settings.texts == {"num.partitions": "7"}
    (told,) = settings.told
    assert "did you mean num.partitions?" in told
    with pytest.raises(HeadraceError, match="HEADRACE_NUM_PARTITIONS: num.partitions must be"):
        settings.add_environment({"HEADRACE_NUM_PARTITIONS": "x"})


def test_what_comes_later_wins_also_under_another_name_for_the_same() -> None:
    settings = Settings()
    settings.add({"broker.id": "5", "log.dir": "/a", "num.partitions": "1"}, "first")
    settings.add({"node.id": "6", "log.dirs": "/b"}, "second")
    assert settings.texts == {"node.id": "6", "log.dirs": "/b", "num.partitions": "1"}
    settings.add({"log.dir": "/c"}, "third")
    assert NodeConfig.parse(settings.texts).storage.log_dirs == ("/c",)


def test_a_slip_of_the_pen_in_a_file_of_kafkas_is_told_with_the_nearest_name() -> None:
    settings = Settings()
    settings.add_properties(b"num.partitons=3\nlog.cleaner.of.old=1\n", "server.properties")
    assert settings.told == [
        "server.properties: num.partitons is left out: Kafka 4 has no such setting; did you mean num.partitions?",
        "server.properties: log.cleaner.of.old is left out: Kafka 4 has no such setting.",
    ]


def test_amounts_have_units_as_settings_of_topics_do_but_not_in_a_file_of_kafkas() -> None:
    settings = Settings()
    settings.add({"log.retention.ms": "7d", "log.segment.bytes": "64MiB"}, "--set")
    settings.add_environment({"HEADRACE_MESSAGE_MAX_BYTES": "2k"})
    assert settings.texts == {
        "log.retention.ms": "604800000",
        "log.segment.bytes": "67108864",
        "message.max.bytes": "2048",
    }
    with pytest.raises(HeadraceError, match="log.retention.ms must be a whole number of milliseconds"):
        settings.add_properties(b"log.retention.ms=7d", "server.properties")


def serve(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", "serve", *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (("--config", "none.toml"), {}, "none.toml can't be read: No such file or directory."),
        (("--properties", "none"), {}, "none can't be read: No such file or directory."),
        ((), {"HEADRACE_LOG_DIRS": "a,./a"}, "HEADRACE_LOG_DIRS: log.dirs names one folder twice, as a and as ./a"),
        ((), {"HEADRACE_LOG_DIRS": "a,link"}, "log.dirs names one folder twice, as a and as link"),
        ((), {"HEADRACE_LOG_FORMAT": "loud"}, "HEADRACE_LOG_FORMAT is loud"),
        (("--set", "ssl.key.password=x"), {}, "--set: ssl.key.password must stay unset: there is no security yet"),
        (("--config", "bad.toml"), {}, "bad.toml: num.partitions must be a whole number"),
    ],
)
def test_serve_says_in_one_sentence_where_a_bad_setting_is_from(
    arguments: tuple[str, ...], environment: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "bad.toml").write_text("num.partitions = 'many'")
    done = serve(tmp_path, *arguments, **environment)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_runs_with_settings_from_everywhere_and_flags_win(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_bytes(COMBINED)
    (tmp_path / "h.toml").write_text("num.partitions = 4\nlog.dirs = ['data']\nmessage.max.bytes = 5000\n")
    program = (
        "import sys; from headrace.cli import serve\n"
        "def run(config, *_): print(config.topics.num_partitions, config.log.max_message_bytes, "
        "config.log.retention_ms, config.storage.log_dirs, config.fetch.fetch_max_bytes)\n"
        "serve._run = run; serve.main(sys.argv[1:])"
    )
    files = ["--properties", "server.properties", "--config", "h.toml"]
    done = subprocess.run(
        [sys.executable, "-c", program, *files, "--set", "fetch.max.bytes=2000"],
        cwd=tmp_path,
        env={**os.environ, "HEADRACE_MESSAGE_MAX_BYTES": "6000", "HEADRACE_FETCH_MAX_BYTES": "3000"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "4 6000 86400000 ('data',) 2000"
    assert "num.io.threads has no effect" in done.stderr
