"""`headrace topic`: create, look at, change, delete and trim topics of any Kafka cluster."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import Misused, assignments
from headrace.cli.connection import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    DryRun,
    Json,
    Topic,
    Topics,
    Yes,
    all_topics,
    complete_topics,
    is_pattern,
    matching,
    run,
    unknown_topic,
)
from headrace.cli.output import print_json, remark, say, sure
from headrace.cli.quantities import plural, size_text
from headrace.cli.topic_trim import trim
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.cli.topic_view import TopicView
    from headrace.client import Client, ConfigChange, TopicInfo

app = typer.Typer(
    help="Create, look at, change, delete and trim topics, of any Kafka cluster.\n\n"
    "Where the cluster is: --bootstrap HOST:PORT, or the variable HEADRACE_BOOTSTRAP.\n\n"
    "Examples:\n\n"
    "- `headrace topic create orders --partitions 6 -c retention.ms=7d`\n"
    "- `headrace topic list`\n"
    "- `headrace topic describe orders`\n"
    "- `headrace topic alter orders --partitions 12`\n"
    "- `headrace topic trim orders --before 30d --dry-run`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting, such as retention.ms=7d; may be repeated."),
]
PatternsOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATTERN", help="Only these, as in 'orders-*'.", autocompletion=complete_topics),
]


class Order(StrEnum):
    NAME = "name"
    SIZE = "size"
    RECORDS = "records"
    PARTITIONS = "partitions"


# --- create -----------------------------------------------------------------------------------------------------------


@app.command("create")
def create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="The new topics.")],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="How many. By default the cluster decides."),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication", "-r", metavar="N", min=1, max=32767, help="Copies of each. By default the cluster decides."
        ),
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is let be.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create topics.

    Values in ms take units as in 90s, 12h or 7d, those in bytes as in 64KiB or 1GiB.

    Examples:

    - `headrace topic create orders`
    - `headrace topic create orders -p 12 -c retention.ms=7d`
    - `headrace topic create users -c cleanup.policy=compact --if-not-exists`
    """
    from headrace.client import NewTopic

    configs = assignments.plain(config or ())
    count = -1 if partitions is None else partitions
    names = list(dict.fromkeys(names))
    _require_no_collision(names)
    wanted = [NewTopic(name, count, -1 if replication is None else replication, configs) for name in names]

    async def work(client: Client) -> tuple[list[tuple[TopicInfo | None, str, bool]], HeadraceError | None]:
        new: dict[str, NewTopic] = {}
        for topic in wanted:  # all are tried before one is made, so that one mistake changes nothing
            try:
                await client.admin.create_topics([topic], validate_only=True)
            except Refused as refused:
                if refused.error is not Error.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    failed = _not_created(refused, topic.name, configs)
                    none = f" None of the {len(wanted)} topics was created." if len(wanted) > 1 else ""
                    raise Refused(refused.error, f"{failed}{none}") from refused
            else:
                new[topic.name] = topic
        failure = None
        if new and not dry_run:
            try:
                await client.admin.create_topics(new.values())
            except Refused as refused:  # of one; the others may have been made, and that is to be told
                failure = _not_created(refused, "", configs)
        topics = await all_topics(client)
        shown = [name for name in names if name in topics or failure is None]
        return [(topics.get(name), name, name in new) for name in shown], failure

    results, failure = run(bootstrap, work)
    if as_json:
        print_json([_created_json(info, name, is_new, dry_run) for info, name, is_new in results])
    else:
        _tell_created(results)
    if failure is not None:
        raise failure


def _require_no_collision(names: Sequence[str]) -> None:
    """A cluster is asked about each alone, and can't see that two of them get in each other's way."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.replace(".", "_"), name)
        if other != name:
            raise Misused(f"Topics {other} and {name} can't both be: their names differ in '.' and '_' alone")


def _tell_created(results: Sequence[tuple[TopicInfo | None, str, bool]]) -> None:
    for info, name, is_new in results:
        if info is None:
            say(f"Would create topic {name}.")
        elif is_new:
            say(f"Created topic {name} with {_extent(info)}.")
        else:
            say(f"Topic {name} is there already, with {_extent(info)}; it was let be.")


def _not_created(refused: Refused, name: str, configs: dict[str, str]) -> HeadraceError:
    if refused.error is Error.TOPIC_ALREADY_EXISTS and name:
        return Refused(
            refused.error,
            f"There is a topic {name} already. See it with `headrace topic describe {name}`, or let it be with "
            "--if-not-exists.",
        )
    return assignments.explained(refused, configs)


def _extent(info: TopicInfo) -> str:
    replicas = max((len(partition.replicas) for partition in info.partitions.values()), default=0)
    return f"{plural(len(info.partitions), 'partition')}, {plural(replicas, 'replica')} each"


def _created_json(info: TopicInfo | None, name: str, is_new: bool, dry_run: bool) -> dict[str, object]:
    from headrace.cli.topic_view import topic_id_text

    return {
        "name": name,
        "created": is_new and not dry_run,
        "would_create": is_new and dry_run,
        "topic_id": None if info is None else topic_id_text(info.topic_id),
        "partitions": None if info is None else len(info.partitions),
        "replication_factor": None
        if info is None
        else max((len(p.replicas) for p in info.partitions.values()), default=0),
    }


# --- list and describe ------------------------------------------------------------------------------------------------


@app.command("list")
def list_topics(
    patterns: PatternsOrAll = None,
    internal: Annotated[bool, typer.Option("--internal", "-i", help="Internal topics, too.")] = False,
    sort: Annotated[Order, typer.Option("--sort", "-s", help="By what; the largest first.")] = Order.NAME,
    names_only: Annotated[bool, typer.Option("--names", help="Only the names, one a line.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List topics with their partitions, records and sizes.

    Records are offsets in use: in a compacted topic some of them may be gone. Sizes are of one copy, the leader's.

    Examples:

    - `headrace topic list`
    - `headrace topic list 'orders-*' --sort size`
    - `headrace topic list --names`
    """

    async def work(client: Client) -> list[TopicView]:
        from headrace.cli.topic_view import TopicView, views

        topics = await all_topics(client)
        if patterns:
            topics = matching(topics, patterns, internal=internal)
        else:
            topics = {name: topic for name, topic in topics.items() if internal or not topic.is_internal}
        return [TopicView(info) for info in topics.values()] if names_only else await views(client, topics)

    shown = _sorted(run(bootstrap, work, once=True), sort)
    if names_only:
        names = [view.info.name for view in shown]
        print_json(names) if as_json else print("".join(f"{name}\n" for name in names), end="")
        return
    from headrace.cli.topic_view import print_list, summary_json

    if as_json:
        print_json([summary_json(view) for view in shown])
    elif shown:
        print_list(shown)
    else:
        remark("There are no topics yet. Create one: headrace topic create orders")


def _sorted(shown: list[TopicView], order: Order) -> list[TopicView]:
    if order is Order.NAME:
        return shown
    keys = {
        Order.SIZE: lambda view: view.size_bytes or 0,
        Order.RECORDS: lambda view: view.records or 0,
        Order.PARTITIONS: lambda view: len(view.info.partitions),
    }
    return sorted(shown, key=keys[order], reverse=True)


@app.command("describe")
def describe(topics: Topics, as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show topics in full: settings, partitions, leaders, replicas, offsets, sizes.

    Examples:

    - `headrace topic describe orders`
    - `headrace topic describe 'orders-*' --json`
    """
    from headrace.cli.topic_view import print_topic, topic_json, views

    async def work(client: Client) -> list[TopicView]:
        return await views(client, matching(await all_topics(client), topics), in_full=True)

    shown = run(bootstrap, work, once=True)
    if as_json:
        print_json([topic_json(view) for view in shown])
        return
    for number, view in enumerate(shown):
        if number:
            say("")
        print_topic(view)


# --- alter ------------------------------------------------------------------------------------------------------------


@app.command("alter")
def alter(
    topic: Topic,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="How many there are to be: more than now."),
    ] = None,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", "-u", metavar="NAME", help="A setting to go back to its default; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Give a topic more partitions, or other settings.

    NAME+=VALUE adds to a list and NAME-=VALUE takes from it. With more partitions, records of a key may go to another
    partition than before.

    Examples:

    - `headrace topic alter orders --partitions 24`
    - `headrace topic alter orders -c retention.ms=30d`
    - `headrace topic alter orders --unset retention.ms`
    """
    from headrace.cli.settings_change import Changed, change_settings, changed_json, print_changed
    from headrace.client import ConfigResource

    wanted: list[ConfigChange] = assignments.changes(config or ()) + assignments.removals(unset or ())
    if partitions is None and not wanted:
        raise Misused("There is nothing to alter; say --partitions N, --config NAME=VALUE or --unset NAME")

    async def work(client: Client) -> tuple[int, list[Changed]]:
        topics = await all_topics(client)
        if topic not in topics:
            raise unknown_topic(topic, topics)
        resource, info, changed = ConfigResource.topic(topic), topics[topic], list[Changed]()
        if wanted:  # before there are more partitions, so that one mistake changes nothing
            changed = await change_settings(client, resource, wanted, dry_run=True)
        if partitions is not None:
            await _grow(client, info, partitions, dry_run=dry_run)
        if wanted and not dry_run:
            changed = await change_settings(client, resource, wanted, dry_run=False)
        return len(info.partitions), changed

    before, changed = run(bootstrap, work)
    if as_json:
        grown = None if partitions is None else {"before": before, "after": partitions}
        print_json({"topic": topic, "dry_run": dry_run, "partitions": grown, "configs": changed_json(changed)})
        return
    if partitions is not None:
        would = "would have" if dry_run else "has"
        say(f"Topic {topic} {would} {plural(partitions, 'partition')} (was {before}).")
    print_changed(f"topic {topic}", changed, dry_run=dry_run)


async def _grow(client: Client, info: TopicInfo, count: int, *, dry_run: bool) -> None:
    there = len(info.partitions)
    if count <= there:
        already, why = (" already", "") if count == there else ("", "partitions can't be taken away; ")
        raise Refused(
            Error.INVALID_PARTITIONS,
            f"Topic {info.name} has {plural(there, 'partition')}{already}; {why}choose more than {there}.",
        )
    await client.admin.create_partitions({info.name: count}, validate_only=dry_run)


# --- delete -----------------------------------------------------------------------------------------------------------


@app.command("delete")
def delete(
    topics: Topics,
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that is not there is no failure.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with all their records, for good.

    A terminal shows what would be lost and asks; elsewhere --yes is needed. Patterns don't match internal topics.

    Examples:

    - `headrace topic delete orders`
    - `headrace topic delete 'test-*' --dry-run`
    - `headrace topic delete 'test-*' --yes`
    """
    from headrace.cli.topic_view import print_list, views

    async def find(client: Client) -> list[TopicView]:
        there = await all_topics(client)
        wanted = [name for name in topics if not if_exists or name in there or _matches_any(name, there)]
        return await views(client, matching(there, wanted)) if wanted else []

    found = run(bootstrap, find, once=True)
    names = [view.info.name for view in found]
    if not dry_run and names:
        sure(f"Delete {_which(names)} with {_contents(found)}?", lambda: print_list(found), yes=yes)
        run(bootstrap, lambda client: _delete(client, names))
    if as_json:
        print_json({"dry_run": dry_run, "topics": names})
    elif not names:
        say("There is no such topic; nothing was deleted.")
    elif dry_run:
        print_list(found)
        say(f"Would delete {_which(names)} with {_contents(found)}.")
    else:
        say(f"Deleted {_which(names)}.")


async def _delete(client: Client, names: Sequence[str]) -> None:
    try:
        await client.admin.delete_topics(names)
    except Refused as refused:
        left = set(names) & (await all_topics(client)).keys()
        gone = f" {len(names) - len(left)} of {len(names)} topics were deleted." if len(names) > 1 else ""
        raise Refused(refused.error, f"{refused}{gone}") from refused


def _matches_any(text: str, topics: dict[str, TopicInfo]) -> bool:
    if not is_pattern(text):
        return False
    try:
        return bool(matching(topics, [text]))
    except HeadraceError:
        return False


def _which(names: Sequence[str]) -> str:
    return f"topic {names[0]}" if len(names) == 1 else plural(len(names), "topic")


def _contents(found: Sequence[TopicView]) -> str:
    records, size = sum(view.records or 0 for view in found), sum(view.size_bytes or 0 for view in found)
    return f"{plural(records, 'record')} ({size_text(size)})"


app.command("trim")(trim)
