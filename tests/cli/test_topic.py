"""`headrace topic` against a real node: what is made, shown, changed and lost, and what it says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.cli import Misused, output
from headrace.client import NewTopic
from headrace.client.admin import Admin
from headrace.errors import Error, Refused
from tests.cli.running import Cli


def described(cli: Cli, topic: str) -> Any:
    (found,) = cli.done("topic", "describe", topic, "--json").json
    return found


# --- create -----------------------------------------------------------------------------------------------------------


def test_create_makes_a_topic_as_wished(cli: Cli, name: str) -> None:
    told = cli.done("topic", "create", name, "-p", "3", "-r", "1", "-c", "retention.ms=7d", "-c", "segment.bytes=1MiB")
    assert told.out == f"Created topic {name} with 3 partitions, 1 replica each.\n"
    found = described(cli, name)
    assert (found["name"], found["replication_factor"], len(found["partitions"])) == (name, 1, 3)
    configs = {entry["name"]: entry for entry in found["configs"]}
    assert configs["retention.ms"]["value"] == "604800000"
    assert configs["segment.bytes"] == {
        "name": "segment.bytes",
        "value": "1048576",
        "source": "dynamic_topic",
        "read_only": False,
        "sensitive": False,
    }


def test_create_lets_be_what_is_there_only_when_told_to(cli: Cli, topic: str) -> None:
    said = cli.failed("topic", "create", topic)
    assert said == (
        f"There is a topic {topic} already. See it with `headrace topic describe {topic}`, or let it be with "
        "--if-not-exists."
    )
    told = cli.done("topic", "create", topic, "--if-not-exists", "-p", "9")
    assert told.out == f"Topic {topic} is there already, with 3 partitions, 1 replica each; it was let be.\n"


def test_create_tries_without_doing(cli: Cli, name: str) -> None:
    assert cli.done("topic", "create", name, "--dry-run").out == f"Would create topic {name}.\n"
    (made,) = cli.done("topic", "create", name, "--dry-run", "--json").json
    assert (made["created"], made["would_create"], made["topic_id"]) == (False, True, None)
    assert f"There is no topic '{name}'" in cli.failed("topic", "describe", name)


def test_create_makes_none_of_several_when_one_can_not_be_made(cli: Cli, topic: str, name: str) -> None:
    assert "There is a topic" in cli.failed("topic", "create", f"{name}-new", topic)
    assert f"{name}-new" not in cli.done("topic", "list", "--names").out.split()
    made = cli.done("topic", "create", f"{name}-new", topic, "--if-not-exists", "--json").json
    assert [one["created"] for one in made] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-c", "retention.mss=1"), "did you mean retention.ms"),
        (("-c", "retention.ms=many"), "See: headrace config explain retention.ms"),
        (("-c", "segment.bytes=-3"), "See: headrace config explain segment.bytes"),
        (("-r", "3"), "INVALID_REPLICATION_FACTOR"),
    ],
)
def test_create_tells_what_the_cluster_does_not_take(
    cli: Cli, name: str, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in cli.failed("topic", "create", name, *arguments)
    assert name not in cli.done("topic", "list", "--names").out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-p", "0"), "--partitions must be at least 1"),
        (("-p", "many"), "--partitions"),
        (("-c", "retention.ms"), "write NAME=VALUE, as in retention.ms=7d"),
        (("-c", "a=1", "-c", "a=2"), "a is given twice"),
        (("-c", "cleanup.policy+=compact"), "has nothing to add to"),
        (("--partition", "3"), "--partitions"),
    ],
)
def test_create_used_wrongly_is_exit_code_2(cli: Cli, name: str, arguments: tuple[str, ...], expected: str) -> None:
    assert expected in cli.failed("topic", "create", name, *arguments, code=2)


def test_create_sees_names_that_collide_before_one_is_made(cli: Cli, name: str) -> None:
    said = cli.failed("topic", "create", f"{name}.x", f"{name}_a", f"{name}.a", code=2)
    assert said == f"Topics {name}_a and {name}.a can't both be: their names differ in '.' and '_' alone."
    assert name not in cli.done("topic", "list", "--names").out


def test_create_makes_and_tells_a_topic_that_is_named_twice_once(cli: Cli, name: str) -> None:
    assert cli.done("topic", "create", name, name).out == f"Created topic {name} with 1 partition, 1 replica each.\n"


def test_create_tells_what_was_made_when_one_fails_after_all(
    cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics = Admin.create_topics

    async def one_by_one(self: Admin, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, bytes]:
        for topic in topics:
            if not validate_only and topic.name.endswith("-b"):
                raise Refused(Error.POLICY_VIOLATION, "Topic b can't be created (POLICY_VIOLATION): no.")
            await create_topics(self, [topic], validate_only=validate_only)
        return {}

    monkeypatch.setattr(Admin, "create_topics", one_by_one)
    done = cli("topic", "create", f"{name}-a", f"{name}-b")
    assert (done.code, done.out) == (1, f"Created topic {name}-a with 1 partition, 1 replica each.\n")
    assert "Topic b can't be created" in done.err


def test_a_bad_name_is_refused_with_the_reason(cli: Cli) -> None:
    assert "INVALID_TOPIC_EXCEPTION" in cli.failed("topic", "create", "no spaces")


# --- list and describe ------------------------------------------------------------------------------------------------


def test_list_has_a_row_for_each_topic(cli: Cli, topic: str) -> None:
    told = cli.done("topic", "list")
    assert told.rows[0] == ["topic", "partitions", "replicas", "records", "size", "state"]
    (row,) = [row for row in told.rows if row[0] == topic]
    assert row[1:4] == ["3", "1", "10"]
    assert row[-1] == "ok"
    (found,) = cli.done("topic", "list", f"{topic[:-1]}*", "--json").json
    assert (found["name"], found["partitions"], found["records"]) == (topic, 3, 10)
    assert found["size_bytes"] > 0


def test_list_sorts_and_finds_by_pattern(cli: Cli, name: str) -> None:
    for number in range(3):
        cli.done("topic", "create", f"{name}-{number}", "-p", str(number + 1))
    assert cli.done("topic", "list", f"{name}-*", "--names").out == f"{name}-0\n{name}-1\n{name}-2\n"
    sorted_rows = cli.done("topic", "list", f"{name}-[01]", f"{name}-2", "--sort", "partitions").rows[1:]
    assert [row[0] for row in sorted_rows] == [f"{name}-2", f"{name}-1", f"{name}-0"]
    assert cli.done("topic", "list", f"{name}-?", "--names", "--json").json == [f"{name}-{n}" for n in range(3)]
    assert cli.failed("topic", "list", f"{name}x*") == (
        f"No topic matches '{name}x*'. See what is there with `headrace topic list`."
    )


def test_describe_shows_partitions_offsets_and_settings(cli: Cli, topic: str) -> None:
    found = described(cli, topic)
    first, second, _ = found["partitions"]
    assert (first["start_offset"], first["end_offset"], first["records"]) == (0, 10, 10)
    assert first["leader"] == first["replicas"][0] == first["in_sync"][0]
    assert first["newest_ms"] > 0
    assert (second["end_offset"], second["newest_ms"]) == (0, None)
    shown = cli.done("topic", "describe", topic).out
    assert shown.startswith(f"{topic}\n  id ")
    assert "3 partitions, 1 replica each" in shown
    assert "partition  leader  replicas  in sync  start  end  records" in shown


def test_an_unknown_topic_is_told_with_the_nearest_name(cli: Cli, topic: str) -> None:
    wrong = topic[:-1]
    assert cli.failed("topic", "describe", wrong) == f"There is no topic '{wrong}'; did you mean {topic}?"
    far = cli.failed("topic", "describe", "qqqqqqqq")
    assert far.endswith("or create it with `headrace topic create qqqqqqqq`.")


# --- alter ------------------------------------------------------------------------------------------------------------


def test_alter_adds_partitions_and_settings_and_says_what_they_were(cli: Cli, topic: str) -> None:
    would = cli.done("topic", "alter", topic, "-p", "5", "-c", "retention.ms=1h", "--dry-run").out
    assert f"Topic {topic} would have 5 partitions (was 3).\nWould change the settings of topic {topic}:\n" in would
    assert len(described(cli, topic)["partitions"]) == 3
    did = cli.done("topic", "alter", topic, "-p", "5", "-c", "retention.ms=1h")
    assert did.rows[0] == ["Topic", topic, "has", "5", "partitions", "(was", "3)."]
    assert did.rows[2] == ["retention.ms", "604800000", "->", "3600000", "(1", "hour)"]
    told = cli.done("topic", "alter", topic, "--unset", "retention.ms", "--json").json
    assert told["configs"] == [
        {
            "name": "retention.ms",
            "operation": "delete",
            "value": None,
            "before": "3600000",
            "after": "604800000",
        }
    ]


def test_alter_adds_to_a_list_and_takes_from_it(cli: Cli, topic: str) -> None:
    added = cli.done("topic", "alter", topic, "-c", "cleanup.policy+=compact")
    assert added.rows[1] == ["cleanup.policy", "delete", "->", "delete,compact"]
    again = cli.done("topic", "alter", topic, "-c", "cleanup.policy=delete,compact").out
    assert again.splitlines()[0] == f"Nothing changed in the settings of topic {topic}: they have these values."
    assert again.endswith("(as it was)\n")
    taken = cli.done("topic", "alter", topic, "-c", "cleanup.policy-=delete")
    assert taken.rows[1] == ["cleanup.policy", "delete,compact", "->", "compact"]
    assert "compaction may have removed some" in cli.done("topic", "describe", topic).out


def test_alter_changes_nothing_when_one_thing_is_wrong(cli: Cli, topic: str) -> None:
    assert "did you mean retention.ms" in cli.failed("topic", "alter", topic, "-p", "5", "-c", "retention.mss=1")
    assert len(described(cli, topic)["partitions"]) == 3
    said = cli.failed("topic", "alter", topic, "-p", "2")
    assert said == f"Topic {topic} has 3 partitions; partitions can't be taken away; choose more than 3."
    said = cli.failed("topic", "alter", topic, "-p", "3")
    assert said == f"Topic {topic} has 3 partitions already; choose more than 3."
    assert "There is nothing to alter" in cli.failed("topic", "alter", topic, code=2)
    assert "only the name is wanted" in cli.failed("topic", "alter", topic, "-u", "a=b", code=2)


# --- delete -----------------------------------------------------------------------------------------------------------


def test_delete_asks_and_elsewhere_needs_yes(cli: Cli, topic: str) -> None:
    said = cli.failed("topic", "delete", topic, code=2)
    assert said.startswith(f"Delete topic {topic} with 10 records (")
    assert "There is no terminal to ask at: say --yes" in said
    would = cli.done("topic", "delete", topic, "--dry-run")
    assert would.rows[-1][:4] == ["Would", "delete", "topic", topic]
    assert cli.done("topic", "delete", topic, "--yes").out == f"Deleted topic {topic}.\n"
    assert topic not in cli.done("topic", "list", "--names").out.split()


def test_delete_by_pattern_shows_what_it_would_delete(cli: Cli, name: str) -> None:
    cli.done("topic", "create", f"{name}-a", f"{name}-b")
    assert cli.done("topic", "delete", f"{name}-*", "--dry-run", "--json").json == {
        "dry_run": True,
        "topics": [f"{name}-a", f"{name}-b"],
    }
    assert cli.done("topic", "delete", f"{name}-*", "--yes").out == "Deleted 2 topics.\n"
    assert "No topic matches" in cli.failed("topic", "delete", f"{name}-*", "--yes")
    gone = cli.done("topic", "delete", f"{name}-*", f"{name}-a", "--if-exists", "--yes").out
    assert gone == "There is no such topic; nothing was deleted.\n"


# --- trim -------------------------------------------------------------------------------------------------------------


def test_trim_to_an_offset_of_a_partition(cli: Cli, topic: str) -> None:
    assert "There is no terminal to ask at" in cli.failed("topic", "trim", topic, "--to-offset", "4", "-p", "0", code=2)
    would = cli.done("topic", "trim", topic, "--to-offset", "4", "-p", "0", "--dry-run")
    assert would.rows[:2] == [["partition", "start", "end", "new", "start", "deleted"], ["0", "0", "10", "4", "4"]]
    did = cli.done("topic", "trim", topic, "--to-offset", "4", "-p", "0", "--yes")
    assert did.out == f"Deleted 4 records of topic {topic}.\n"
    assert described(cli, topic)["partitions"][0]["start_offset"] == 4
    again = cli.done("topic", "trim", topic, "--to-offset", "4", "-p", "0", "--yes")
    assert again.out == f"Topic {topic} has no records there; nothing was deleted.\n"


def test_trim_to_a_time_and_all(cli: Cli, name: str) -> None:
    cli.done("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")
    for day in (1, 2):
        cli.produce(name, 3, timestamp_ms=1_767_225_600_000 + day * 86_400_000)
    told = cli.done("topic", "trim", name, "--before", "2026-01-03", "--yes", "--json").json
    assert (told["records"], told["partitions"][0]["new_start_offset"]) == (3, 3)
    assert cli.done("topic", "trim", name, "--before", "1d", "--dry-run").rows[1] == ["0", "3", "6", "6", "3"]
    assert cli.done("topic", "trim", name, "--all", "--yes").out == f"Deleted 3 records of topic {name}.\n"
    assert [part["records"] for part in described(cli, name)["partitions"]] == [0, 0]


def test_to_trim_a_topic_that_is_only_compacted_is_refused_with_what_to_do(cli: Cli, name: str) -> None:
    cli.done("topic", "create", name, "-p", "1", "-c", "cleanup.policy=compact")
    cli.produce(name, 4)
    for option in ("--dry-run", "--yes"):
        said = cli.failed("topic", "trim", name, "--all", option)
        assert said.startswith(f"Topic {name} has cleanup.policy=compact, and is trimmed only with delete in it: ")
        assert f"`headrace topic alter {name} --config cleanup.policy+=delete`" in said
    cli.done("topic", "alter", name, "--config", "cleanup.policy+=delete")
    assert cli.done("topic", "trim", name, "--all", "--yes").out == f"Deleted 4 records of topic {name}.\n"


def test_an_option_that_was_begun_is_offered_before_one_that_looks_alike(cli: Cli, topic: str) -> None:
    said = cli.failed("topic", "trim", topic, "--to", "1", code=2)
    assert said == "No such option: --to (Possible options: --to-offset). See: headrace topic trim --help"


def test_of_several_topics_none_is_created_when_one_can_not_be(cli: Cli, topic: str, name: str) -> None:
    said = cli.failed("topic", "create", f"{name}-new", topic)
    assert said.startswith(f"There is a topic {topic} already. ")
    assert said.endswith(" None of the 2 topics was created.")
    assert f"{name}-new" not in cli.done("topic", "list", "--names").out.split()


def test_trim_past_the_end_or_without_a_goal_is_refused(cli: Cli, topic: str) -> None:
    said = cli.failed("topic", "trim", topic, "--to-offset", "11", "-p", "0", "--yes")
    assert said == f"{topic}-0 ends at offset 10, before 11; choose another offset, or --all."
    assert "has no partition 7; it has 0 to 2" in cli.failed("topic", "trim", topic, "--all", "-p", "7")
    assert "Say up to where to trim, once" in cli.failed("topic", "trim", topic, code=2)
    assert "Say up to where to trim, once" in cli.failed("topic", "trim", topic, "--all", "--before", "1d", code=2)
    assert "'soon' is no time" in cli.failed("topic", "trim", topic, "--before", "soon", code=2)


def test_without_a_terminal_nobody_is_asked() -> None:
    with pytest.raises(Misused, match="Delete it\\? There is no terminal"):
        output.sure("Delete it?", lambda: None, yes=False)
    output.sure("Delete it?", lambda: None, yes=True)
