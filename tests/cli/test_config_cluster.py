"""`headrace config get|set|unset|resources` against a real node."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cli.running import Cli
from tests.cli.terminal import Terminal, lines_of


def broker_id(cli: Cli) -> str:
    return str(cli.done("cluster", "describe", "--json").json["brokers"][0]["broker"])


def test_settings_of_a_topic_are_set_shown_and_taken_back(cli: Cli, topic: str) -> None:
    did = cli.done("config", "set", "--topic", topic, "retention.ms=2h", "max.message.bytes=64KiB")
    assert did.rows[0] == ["Changed", "the", "settings", "of", "topic", f"{topic}:"]
    assert did.rows[1] == ["retention.ms", "604800000", "->", "7200000", "(2", "hours)"]
    assert did.rows[2][-3:] == ["65536", "(64", "KiB)"]
    shown = cli.done("config", "get", "--topic", topic).rows
    assert ["retention.ms", "7200000", "2", "hours", "set", "on", "the", "topic"] in shown
    taken = cli.done("config", "unset", "--topic", topic, "retention.ms", "max.message.bytes")
    assert taken.rows[1] == ["retention.ms", "7200000", "->", "604800000", "(7", "days,", "default)"]
    names = [entry["name"] for entry in cli.done("config", "get", "--topic", topic, "--json").json]
    assert "retention.ms" not in names


def test_get_finds_settings_by_name_and_pattern_and_says_where_values_come_from(cli: Cli, topic: str) -> None:
    (entry,) = cli.done("config", "get", "--topic", topic, "retention.ms", "--json").json
    assert (entry["value"], entry["source"], entry["type"], entry["read_only"]) == (
        "604800000",
        "default",
        "long",
        False,
    )
    found = cli.done("config", "get", "--topic", topic, "segment.*", "--json").json
    assert "segment.bytes" in {entry["name"] for entry in found}
    assert len(cli.done("config", "get", "--topic", topic, "--all").rows) > 20
    said = cli.failed("config", "get", "--topic", topic, "retention.mss")
    assert said == f"Topic {topic} has no setting 'retention.mss'; did you mean retention.ms?"


def test_the_setting_that_was_refused_is_the_one_to_explain(cli: Cli, topic: str) -> None:
    said = cli.failed("config", "set", "-t", topic, "compression.type=gzip", "compression.gzip.level=99")
    assert said.endswith("See: headrace config explain compression.gzip.level")


def test_a_setting_that_is_taken_back_and_nobody_knows_is_told_with_a_command_that_works(cli: Cli, topic: str) -> None:
    said = cli.failed("topic", "alter", topic, "--unset", "foo.bar")
    command = said.partition("see what there is: headrace ")[2]
    assert command == f"config get --topic {topic} --all"
    assert "retention.ms" in cli.done(*command.split()).out


def test_what_stays_as_it_was_is_no_change(cli: Cli, topic: str) -> None:
    (_, row) = cli.done("config", "set", "-t", topic, "retention.ms=7d").out.splitlines()
    assert row.endswith("604800000  (7 days, the same, now set here)")
    for more in ((), ("--dry-run",)):
        told, row = cli.done("config", "set", "-t", topic, "retention.ms=7d", *more).out.splitlines()
        would = "would change" if more else "changed"
        assert told == f"Nothing {would} in the settings of topic {topic}: they have these values."


def test_what_is_taken_back_and_stays_the_same_is_said_to_be_set_here_no_more(cli: Cli, topic: str) -> None:
    cli.done("config", "set", "-t", topic, "retention.ms=7d")
    told, row = cli.done("config", "unset", "-t", topic, "retention.ms").out.splitlines()
    assert told == f"Changed the settings of topic {topic}:"
    assert row.endswith("604800000  (7 days, the same, not set here any more: default)")
    told, row = cli.done("config", "unset", "-t", topic, "retention.ms").out.splitlines()
    assert told.startswith("Nothing changed")
    assert row.endswith("604800000  (7 days, as it was: default)")


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_was_not_set_here_is_taken_back_without_a_change(cli: Cli, topic: str, more: tuple[str, ...]) -> None:
    nothing = "Nothing would change" if more else "Nothing changed"
    told, row = cli.done("config", "unset", "--topic", topic, "retention.ms", *more).out.splitlines()
    assert told.startswith(nothing)
    assert row.endswith("604800000  (7 days, as it was: default)")
    told, row = cli.done("config", "unset", "--cluster", "log.flush.interval.ms", *more).out.splitlines()
    assert told.startswith(nothing)
    assert row.split() == ["log.flush.interval.ms", "(not", "set)", "->", "(not", "set)"]


def test_a_setting_of_brokers_that_nobody_knows_is_told_with_the_nearest(cli: Cli) -> None:
    """Kafka takes it all the same, since a plugin may want it."""
    told = cli("config", "set", "--cluster", "log.retention.mss=1")
    assert "did you mean log.retention.ms" in told.err
    cli("config", "unset", "--cluster", "log.retention.mss")


def test_what_no_topic_has_can_not_be_taken_back(cli: Cli, topic: str) -> None:
    """Brokers would say that they did."""
    said = cli.failed("config", "unset", "--topic", topic, "retention.mss")
    assert said == f"There is no setting 'retention.mss' of topic {topic}; did you mean retention.ms?"


def test_a_value_that_a_group_can_not_have_is_told_without_another_name(cli: Cli) -> None:
    said = cli.failed("config", "set", "--group", "g", "consumer.session.timeout.ms=5")
    assert "from group.consumer.min.session.timeout.ms (45000)" in said
    assert "did you mean" not in said
    assert said.endswith("See: headrace config explain consumer.session.timeout.ms")


def test_a_value_is_shown_with_what_would_count_without_it(cli: Cli, topic: str) -> None:
    cli.done("config", "set", "--topic", topic, "retention.ms=1h")
    (entry,) = cli.done("config", "get", "--topic", topic, "retention.ms", "--json").json
    assert entry["synonyms"][0] == {"name": "retention.ms", "value": "3600000", "source": "dynamic_topic"}


@pytest.mark.skipif("HEADRACE_COMPAT_BOOTSTRAP" in os.environ, reason="Kafka has no such port")
def test_a_value_that_the_node_chose_is_shown_with_why(cli: Cli) -> None:
    shown = cli.done("config", "get", "--broker", broker_id(cli), "http.listen")
    chosen = shown.rows[1][1]
    assert chosen.startswith("127.0.0.1:")
    assert shown.out.splitlines()[2] == f"http.listen=auto (default) is {chosen} here."


def test_dry_run_checks_and_changes_nothing(cli: Cli, topic: str) -> None:
    would = cli.done("config", "set", "--topic", topic, "retention.ms=1h", "--dry-run")
    assert would.rows[0][:2] == ["Would", "change"]
    assert would.rows[1] == ["retention.ms", "604800000", "->", "3600000", "(1", "hour)"]
    (entry,) = cli.done("config", "get", "--topic", topic, "retention.ms", "--json").json
    assert entry["value"] == "604800000"
    assert "INVALID_CONFIG" in cli.failed("config", "set", "--topic", topic, "retention.ms=x", "--dry-run")


@pytest.fixture
def retention_back(cli: Cli) -> Iterator[None]:
    yield
    cli("config", "unset", "--cluster", "log.retention.ms")
    cli("config", "unset", "--broker", broker_id(cli), "log.retention.ms")


@pytest.mark.usefixtures("retention_back")
def test_brokers_and_the_cluster_have_settings(cli: Cli, topic: str) -> None:
    broker = broker_id(cli)
    told = cli.done("config", "set", "--cluster", "log.retention.ms=30d", "--json").json
    assert told["resource"] == {"kind": "broker", "name": ""}
    assert (told["configs"][0]["before"], told["configs"][0]["after"]) == (None, "2592000000")
    assert ["log.retention.ms", "2592000000", "30", "days", "set", "on", "the", "cluster"] in cli.done(
        "config", "get", "--broker", broker
    ).rows
    cli.done("config", "set", "--broker", broker, "log.retention.ms=20d")
    (entry,) = cli.done("config", "get", "--broker", broker, "log.retention.ms", "--json").json
    assert (entry["value"], entry["source"]) == ("1728000000", "dynamic_broker")
    cli.done("config", "unset", "--broker", broker, "log.retention.ms")
    cli.done("config", "unset", "--cluster", "log.retention.ms")


def test_log_levels_of_a_broker_are_shown_and_set(cli: Cli) -> None:
    broker = broker_id(cli)
    levels = {entry["name"]: entry["value"] for entry in cli.done("config", "get", "--logger", broker, "--json").json}
    assert levels
    name = next(iter(levels))
    did = cli.done("config", "set", "--logger", broker, f"{name}=WARN", "--json").json
    assert did["configs"][0]["after"] == "WARN"
    cli.done("config", "set", "--logger", broker, f"{name}={levels[name]}")


@pytest.mark.parametrize("name", ["headrace.net", "net", "net.listener", "headrace.cli.doctor", "headrace"])
def test_the_level_that_a_logger_had_is_shown_whatever_it_is_called(cli: Cli, name: str) -> None:
    broker = broker_id(cli)
    (root,) = cli.done("config", "get", "--logger", broker, "root", "--json").json
    did = cli.done("config", "set", "--logger", broker, f"{name}=error", "--json").json["configs"][0]
    assert (did["before"], did["after"]) == (root["value"], "ERROR")
    back = ["set", f"{name}={root['value']}"] if name == "headrace" else ["unset", name]
    did = cli.done("config", back[0], "--logger", broker, back[1], "--json").json["configs"][0]
    assert (did["before"], did["after"]) == ("ERROR", root["value"])
    assert "(not set)" not in cli.done("config", "set", "--logger", broker, f"{name}={root['value']}").out
    if name != "headrace":
        assert "set on" not in cli.done("config", "unset", "--logger", broker, name).out


@pytest.mark.skipif("HEADRACE_COMPAT_BOOTSTRAP" in os.environ, reason="our own loggers")
def test_a_logger_is_found_with_and_without_the_package(cli: Cli) -> None:
    broker = broker_id(cli)
    for name in ("broker.request_log", "headrace.broker.request_log"):
        cli.done("config", "set", "--logger", broker, f"{name}=WARN")
        (entry,) = cli.done("config", "get", "--logger", broker, name, "--json").json
        assert (entry["name"], entry["value"]) == ("headrace.broker.request_log", "WARN")
        cli.done("config", "unset", "--logger", broker, name)
    found = [entry["name"] for entry in cli.done("config", "get", "--logger", broker, "broker.*", "--json").json]
    assert "headrace.broker.node" in found
    assert cli.done("config", "get", "--logger", broker, "headrace", "--json").json[0]["name"] == "root"
    said = cli.failed("config", "get", "--logger", broker, "broker.request_logs")
    assert said == f"Broker {broker} has no logger 'broker.request_logs'; did you mean broker.request_log?"
    said = cli.failed("config", "get", "--logger", broker, "qqqq")
    assert said == f"Broker {broker} has no logger 'qqqq'; see what there is: headrace config get --logger {broker}"


def test_what_the_cluster_does_not_have_is_a_sentence(cli: Cli) -> None:
    said = cli.failed("config", "get", "--cluster", "qqqq")
    assert said == "The cluster's brokers have no setting 'qqqq'; see what there is with --all."


def test_groups_and_client_metrics_have_settings_and_are_listed(cli: Cli, name: str) -> None:
    cli.done("config", "set", "--group", name, "consumer.session.timeout.ms=50s")
    cli.done("config", "set", "--client-metrics", name, "interval.ms=5s", "metrics=org.apache.kafka.producer.")
    listed = cli.done("config", "resources", "--json").json
    assert {"kind": "group", "name": name} in listed
    assert {"kind": "client-metrics", "name": name} in listed
    (entry,) = cli.done("config", "get", "--client-metrics", name, "interval.ms", "--json").json
    assert (entry["value"], entry["source"]) == ("5000", "dynamic_client_metrics")
    cli.done("config", "unset", "--client-metrics", name, "interval.ms", "metrics")
    cli.done("config", "unset", "--group", name, "consumer.session.timeout.ms")


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("get",), 2, "Say whose settings, once: --topic NAME"),
        (("get", "--cluster", "--group", "g"), 2, "Say whose settings, once"),
        (("set", "--cluster", "log.retention.ms"), 2, "write NAME=VALUE"),
        (("get", "--topic", "qqqqqqqq"), 1, "There is no topic 'qqqqqqqq'"),
        (("get", "--broker", "1000"), 1, "There is no broker 1000; the cluster has "),
        (("get", "--broker", "one"), 2, "--broker"),
    ],
)
def test_what_can_not_be_meant_is_one_sentence(cli: Cli, arguments: tuple[str, ...], code: int, expected: str) -> None:
    assert expected in cli.failed("config", *arguments, code=code)


def test_a_narrow_terminal_breaks_what_was_changed_between_words(cli: Cli, topic: str) -> None:
    options = ("--topic", topic, "retention.ms", "--bootstrap", cli.bootstrap)
    terminal = Terminal("config", "unset", *options, COLUMNS="60")
    assert terminal.end() == 0
    first, second = lines_of(terminal)[-2:]
    assert first == "  retention.ms  604800000  ->  604800000  (7 days, as it"
    assert second == " " * 31 + "was: default)"
