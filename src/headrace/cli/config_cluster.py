"""`headrace config get|set|unset|resources`: the settings that a running cluster has, of ours or of anyone's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import Misused, assignments
from headrace.cli.amounts import setting_words
from headrace.cli.columns import Column
from headrace.cli.connection import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    DryRun,
    Json,
    all_topics,
    complete_topics,
    is_pattern,
    run,
    unknown_topic,
)
from headrace.cli.output import NAME, QUIET, print_json, print_table, remark, say
from headrace.errors import Error, Refused

if TYPE_CHECKING:
    from headrace.client import Client, ConfigChange, ConfigEntry, ConfigResource

OfTopic = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="NAME", help="Of a topic.", autocompletion=complete_topics),
]
OfBroker = Annotated[int | None, typer.Option("--broker", metavar="ID", min=0, help="Of one broker.")]
OfCluster = Annotated[bool, typer.Option("--cluster", help="Of all brokers: the cluster's defaults.")]
OfLogger = Annotated[int | None, typer.Option("--logger", metavar="ID", min=0, help="The log levels of a broker.")]
OfGroup = Annotated[str | None, typer.Option("--group", "-g", metavar="NAME", help="Of a group.")]
OfMetrics = Annotated[
    str | None, typer.Option("--client-metrics", metavar="NAME", help="Of a subscription to clients' metrics.")
]


# --- get --------------------------------------------------------------------------------------------------------------


def get(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Settings, or patterns such as 'retention.*'.")
    ] = None,
    topic: OfTopic = None,
    broker: OfBroker = None,
    cluster: OfCluster = False,
    logger: OfLogger = None,
    group: OfGroup = None,
    client_metrics: OfMetrics = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those at their defaults, too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the settings that a topic, a broker or something else of a running cluster has.

    Without names, those that differ from their defaults. With a name, also where its value comes from.

    Examples:

    - `headrace config get --topic orders`
    - `headrace config get --topic orders retention.ms`
    - `headrace config get --broker 1 'log.*' --all`
    - `headrace config get --cluster`
    """
    from headrace.client import ConfigSource, ResourceType

    resource = _resource(topic, broker, cluster, logger, group, client_metrics)
    entries = run(bootstrap, lambda client: _entries(client, resource), once=True)
    chosen = _chosen(entries, names, resource)
    if not names and not everything and resource.type is not ResourceType.BROKER_LOGGER:
        chosen = [entry for entry in chosen if entry.source is not ConfigSource.DEFAULT]
    if as_json:
        print_json([_entry_json(entry) for entry in chosen])
    elif chosen:
        _print_entries(chosen, chain=bool(names) and not any(map(is_pattern, names or ())))
    elif entries:
        remark(f"All {len(entries)} settings of {_words(resource)} are at their defaults; --all shows them.")
    else:
        remark(f"Nothing is set for {_words(resource)}. Set something with: headrace config set")


async def _entries(client: Client, resource: ConfigResource) -> list[ConfigEntry]:
    await _check_there(client, resource)
    found = await client.admin.describe_configs([resource], synonyms=True)
    return sorted(found.get(resource, {}).values(), key=lambda entry: entry.name)


async def _check_there(client: Client, resource: ConfigResource) -> None:
    """A topic or broker that is not there is told with what is."""
    from headrace.client import ResourceType

    if resource.type is ResourceType.TOPIC:
        topics = await all_topics(client)
        if resource.name not in topics:
            raise unknown_topic(resource.name, topics)
    elif resource.broker_id is not None:
        there = sorted(node.node_id for node in (await client.admin.describe_cluster()).nodes)
        if resource.broker_id not in there:
            raise Refused(
                Error.BROKER_ID_NOT_REGISTERED,
                f"There is no broker {resource.broker_id}; the cluster has {', '.join(map(str, there))}.",
            )


def _chosen(entries: list[ConfigEntry], names: Sequence[str] | None, resource: ConfigResource) -> list[ConfigEntry]:
    from headrace.cli.settings_change import spellings

    if not names:
        return entries
    by_name = {entry.name: entry for entry in entries}
    found: dict[str, ConfigEntry] = {}
    for name in names:
        spelt = spellings(resource, name, by_name)
        matched = {
            one: entry
            for one, entry in by_name.items()
            if one in spelt or any(fnmatchcase(one, text) for text in spelt)
        }
        if not matched:
            raise Refused(Error.INVALID_CONFIG, _has_no(resource, name, by_name))
        found |= matched
    return list(found.values())


def _has_no(resource: ConfigResource, name: str, there: Iterable[str]) -> str:
    from headrace.cli.settings_change import PACKAGE
    from headrace.client import ResourceType

    if resource.type is ResourceType.BROKER_LOGGER:
        package = "" if name.startswith(PACKAGE) else PACKAGE
        near = get_close_matches(name, [one.removeprefix(package) for one in there], n=1)
        hint = (
            f"did you mean {near[0]}?" if near else f"see what there is: headrace config get --logger {resource.name}"
        )
        return f"Broker {resource.name} has no logger '{name}'; {hint}"
    near = get_close_matches(name, there, n=1)
    hint = f"did you mean {near[0]}?" if near else "see what there is with --all."
    whose = _words(resource)
    verb = "has" if resource.name else "have"
    return f"{whose[:1].upper()}{whose[1:]} {verb} no setting '{name}'; {hint}"


def _print_entries(entries: Sequence[ConfigEntry], *, chain: bool) -> None:
    from headrace.cli.topic_view import source_text, value_text

    columns = [
        Column("setting", NAME),
        Column("value"),
        Column("", QUIET, rank=2),
        Column("from", QUIET, rank=1),
        Column("", QUIET, rank=3),
    ]
    rows = [
        (
            entry.name,
            value_text(entry),
            setting_words(entry.name, entry.value),
            source_text(entry.source),
            "read-only" if entry.is_read_only else "",
        )
        for entry in entries
    ]
    print_table(columns, rows)
    for entry in entries if chain else ():
        own = next((one for one in entry.synonyms[:1] if one.name == entry.name), None)
        if own is not None and own.value != entry.value:  # the node chose it
            say(f"{own.name}={own.value} ({source_text(own.source)}) is {entry.value} here.", QUIET)
        if len(entry.synonyms) > 1:
            others = [f"{one.name}={one.value} ({source_text(one.source)})" for one in entry.synonyms[1:]]
            say(f"If {entry.name} were not set there, this would count: {', then '.join(others)}", QUIET)


def _entry_json(entry: ConfigEntry) -> dict[str, Any]:
    from headrace.cli.topic_view import entry_json

    synonyms = [
        {"name": one.name, "value": None if entry.is_sensitive else one.value, "source": one.source.name.lower()}
        for one in entry.synonyms
    ]
    return entry_json(entry) | {"type": entry.type.name.lower(), "synonyms": synonyms}


# --- set and unset ----------------------------------------------------------------------------------------------------


def set_(
    given: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="What to set, as in retention.ms=7d.")],
    topic: OfTopic = None,
    broker: OfBroker = None,
    cluster: OfCluster = False,
    logger: OfLogger = None,
    group: OfGroup = None,
    client_metrics: OfMetrics = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set settings of a running cluster, at once and for good.

    Values in ms take units as in 90s or 7d, those in bytes as in 64KiB. NAME+=VALUE adds to a list, NAME-=VALUE takes
    from it.

    Examples:

    - `headrace config set --topic orders retention.ms=7d`
    - `headrace config set --cluster log.retention.ms=30d`
    - `headrace config set --logger 1 headrace.net=DEBUG`
    """
    resource = _resource(topic, broker, cluster, logger, group, client_metrics)
    _alter(bootstrap, resource, assignments.changes(given), dry_run, as_json)


def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="What is to go back to its default.")],
    topic: OfTopic = None,
    broker: OfBroker = None,
    cluster: OfCluster = False,
    logger: OfLogger = None,
    group: OfGroup = None,
    client_metrics: OfMetrics = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take settings of a running cluster back, so that their defaults count again.

    Examples:

    - `headrace config unset --topic orders retention.ms`
    - `headrace config unset --logger 1 headrace.net`
    """
    resource = _resource(topic, broker, cluster, logger, group, client_metrics)
    _alter(bootstrap, resource, assignments.removals(names), dry_run, as_json)


def _alter(
    bootstrap: str, resource: ConfigResource, wanted: Sequence[ConfigChange], dry_run: bool, as_json: bool
) -> None:
    from headrace.cli.settings_change import Changed, change_settings, changed_json, print_changed
    from headrace.client import ResourceType

    async def work(client: Client) -> list[Changed]:
        await _check_there(client, resource)
        return await change_settings(client, resource, wanted, dry_run=dry_run)

    changed = run(bootstrap, work)
    if as_json:
        print_json({"resource": _resource_json(resource), "dry_run": dry_run, "configs": changed_json(changed)})
    else:
        print_changed(_words(resource), changed, dry_run=dry_run)
    for one in changed:
        # Kafka takes any name of a broker's setting, for the plugins that brokers may have.
        near = assignments.nearest(one.change.name)
        if near and resource.type is ResourceType.BROKER:
            remark(f"{one.change.name} is no setting that is known here; did you mean {near}?")


# --- resources --------------------------------------------------------------------------------------------------------


def resources(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Topics and brokers, too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the groups and the subscriptions to clients' metrics that have settings; with --all, topics and brokers too.

    Examples:

    - `headrace config resources`
    """
    from headrace.client import ResourceType

    shown = [ResourceType.GROUP, ResourceType.CLIENT_METRICS]
    shown += [ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER] if everything else []

    async def work(client: Client) -> list[ConfigResource]:
        return await client.admin.list_config_resources(shown)

    found = sorted(run(bootstrap, work, once=True))
    if as_json:
        print_json([_resource_json(resource) for resource in found])
    elif found:
        print_table([Column("kind"), Column("name", NAME)], [(_kind(resource), resource.name) for resource in found])
    else:
        remark("No group and no subscription to clients' metrics has settings; --all lists topics and brokers, too.")


# --- what they share --------------------------------------------------------------------------------------------------


def _resource(
    topic: str | None,
    broker: int | None,
    cluster: bool,
    logger: int | None,
    group: str | None,
    client_metrics: str | None,
) -> ConfigResource:
    from headrace.client import ConfigResource

    found = [
        *([ConfigResource.topic(topic)] if topic is not None else []),
        *([ConfigResource.broker(broker)] if broker is not None else []),
        *([ConfigResource.broker()] if cluster else []),
        *([ConfigResource.logger(logger)] if logger is not None else []),
        *([ConfigResource.group(group)] if group is not None else []),
        *([ConfigResource.client_metrics(client_metrics)] if client_metrics is not None else []),
    ]
    if len(found) != 1:
        raise Misused(
            "Say whose settings, once: --topic NAME, --broker ID, --cluster, --logger ID, --group NAME or "
            "--client-metrics NAME"
        )
    return found[0]


def _words(resource: ConfigResource) -> str:
    from headrace.client import ResourceType

    if resource.type is ResourceType.BROKER and not resource.name:
        return "the cluster's brokers"
    if resource.type is ResourceType.BROKER_LOGGER:
        return f"the loggers of broker {resource.name}"
    return str(resource)


def _kind(resource: ConfigResource) -> str:
    return resource.type.name.lower().replace("_", "-")


def _resource_json(resource: ConfigResource) -> dict[str, str]:
    return {"kind": _kind(resource), "name": resource.name}
