"""Settings of a cluster changed: what they were, what they are, and how that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.text import Text

from headrace.cli.amounts import setting_words
from headrace.cli.assignments import explained
from headrace.cli.columns import Column
from headrace.cli.output import NAME, QUIET, folded, print_table, say
from headrace.cli.topic_view import source_text, value_text
from headrace.errors import Error, Refused

if TYPE_CHECKING:
    from headrace.client import Client, ConfigChange, ConfigEntry, ConfigResource, ConfigSource


PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 0.0)
PACKAGE: Final = "headrace."
_ROOT_LOGGER: Final = "root"


class Changed(NamedTuple):
    """A setting before and after; None where it is not known, as before it is set for the first time."""

    change: ConfigChange
    here: ConfigSource
    """Where a value comes from that was set on the topic, broker or other thing itself."""
    before: ConfigEntry | None
    after: ConfigEntry | None = None

    @property
    def was_here(self) -> bool:
        return self.before is not None and self.before.source is self.here

    @property
    def is_here(self) -> bool:
        return self.after is not None and self.after.source is self.here


async def change_settings(
    client: Client, resource: ConfigResource, wanted: Sequence[ConfigChange], *, dry_run: bool
) -> list[Changed]:
    """Changes them, or checks that they could be; Refused with the nearest name where there is no such setting."""
    before = await _described(client, resource)
    _require_known(resource, wanted, before)
    try:
        await client.admin.alter_configs({resource: wanted}, validate_only=dry_run)
    except Refused as refused:
        raise explained(refused, [change.name for change in wanted]) from refused
    here = _source_of(resource)
    changed = [Changed(change, here, _entry_of(resource, change.name, before)) for change in wanted]
    if dry_run:
        return [one._replace(after=one.before) if _was_not_there(one) else one for one in changed]
    # The controller has the change; the broker that is asked may hear of it a moment later, and Kafka's tell the new
    # source of a value before the value.
    for pause_s in PAUSES_S:
        after = await _described(client, resource)
        changed = [one._replace(after=_entry_of(resource, one.change.name, after)) for one in changed]
        if all(_has_arrived(one) for one in changed):
            break
        await asyncio.sleep(pause_s)
    return [one if _has_arrived(one) or _is_taken_back(one) else one._replace(after=None) for one in changed]


def _entry_of(resource: ConfigResource, name: str, entries: Mapping[str, ConfigEntry]) -> ConfigEntry | None:
    """What there is of a setting. A logger without a level of its own has that of the one above it."""
    from headrace.client import ResourceType

    if resource.type is not ResourceType.BROKER_LOGGER:
        return entries.get(name)
    name = next((one for one in spellings(resource, name, entries) if one in entries), name)
    while name not in entries and "." in name:
        name = name.rpartition(".")[0]
    return entries.get(name, entries.get(_ROOT_LOGGER))


def spellings(resource: ConfigResource, name: str, there: Iterable[str]) -> list[str]:
    """The names that a setting may have. Our loggers can be named without the package, which is the root of all."""
    from headrace.client import ResourceType

    if resource.type is not ResourceType.BROKER_LOGGER or not any(one.startswith(PACKAGE) for one in there):
        return [name]
    return [_ROOT_LOGGER] if f"{name}." == PACKAGE else [name, PACKAGE + name]


def _source_of(resource: ConfigResource) -> ConfigSource:
    """What a value that is set on this very thing says that it comes from."""
    from headrace.client import ConfigSource, ResourceType

    match resource.type:
        case ResourceType.TOPIC:
            return ConfigSource.DYNAMIC_TOPIC
        case ResourceType.BROKER:
            return ConfigSource.DYNAMIC_BROKER if resource.name else ConfigSource.DYNAMIC_DEFAULT_BROKER
        case ResourceType.BROKER_LOGGER:
            return ConfigSource.DYNAMIC_BROKER_LOGGER
        case ResourceType.CLIENT_METRICS:
            return ConfigSource.DYNAMIC_CLIENT_METRICS
        case ResourceType.GROUP:
            return ConfigSource.DYNAMIC_GROUP
        case _:
            return ConfigSource.UNKNOWN


def _require_known(resource: ConfigResource, wanted: Sequence[ConfigChange], before: Mapping[str, ConfigEntry]) -> None:
    """Brokers take back what nobody ever set, under any name, without a word. What can be set is what they describe:
    of loggers and of the cluster's defaults, that is only what has a value.
    """
    from headrace.client import ConfigOperation, ResourceType

    if not before or resource.type is ResourceType.BROKER_LOGGER or not resource.name:
        return
    for change in wanted:
        if change.operation is ConfigOperation.DELETE and change.name not in before:
            near = get_close_matches(change.name, before, n=1)
            option = f"--{resource.type.name.lower().replace('_', '-')} {quote(resource.name)}"
            hint = f"did you mean {near[0]}?" if near else f"see what there is: headrace config get {option} --all"
            raise Refused(Error.INVALID_CONFIG, f"There is no setting '{change.name}' of {resource}; {hint}")


def _has_arrived(one: Changed) -> bool:
    """Whether value and source are those that the change makes."""
    from headrace.client import ConfigOperation, ConfigSource

    if one.here is ConfigSource.DYNAMIC_BROKER_LOGGER:
        return True  # which no controller has a part in
    if one.change.operation is ConfigOperation.DELETE:
        return _is_taken_back(one) and not _may_be_stale(one)
    if one.after is None or not one.is_here:
        return False
    there, meant = _words(one.after.value), _words(one.change.value)
    match one.change.operation:
        case ConfigOperation.SET:
            return one.after.value == one.change.value or one.after.is_sensitive
        case ConfigOperation.APPEND:
            return meant <= there
        case ConfigOperation.SUBTRACT:
            return not meant & there


def _is_taken_back(one: Changed) -> bool:
    from headrace.client import ConfigOperation

    return one.change.operation is ConfigOperation.DELETE and not one.is_here


def _was_not_there(one: Changed) -> bool:
    """Whether it takes back what was never set here, which changes nothing."""
    from headrace.client import ConfigOperation

    return one.change.operation is ConfigOperation.DELETE and not one.was_here


def _may_be_stale(one: Changed) -> bool:
    """Whether a value that was taken back is still the one that was set, and not the same by chance."""
    if not one.was_here or one.before is None or one.after is None or one.after.value != one.before.value:
        return False
    names = [synonym for synonym in one.before.synonyms if synonym.source is not one.here]
    return not (names and (names[0].name, names[0].value) == (one.before.name, one.before.value))


def _words(value: str | None) -> set[str]:
    return {word.strip() for word in (value or "").split(",")}


async def _described(client: Client, resource: ConfigResource) -> dict[str, ConfigEntry]:
    return (await client.admin.describe_configs([resource], synonyms=True)).get(resource, {})


def print_changed(what: str, changed: Sequence[Changed], *, dry_run: bool) -> None:
    if not changed:
        return
    if all(_stays(one) for one in changed):
        say(f"Nothing {'would change' if dry_run else 'changed'} in the settings of {what}: they have these values.")
    else:
        say(f"{'Would change' if dry_run else 'Changed'} the settings of {what}:")
    rows = [
        (
            one.change.name,
            "(not set)" if one.before is None else value_text(one.before),
            "->",
            _after(one),
        )
        for one in changed
    ]
    columns = [Column("", NAME), Column("", QUIET), Column("", QUIET), Column("")]
    print_table(columns, folded(rows, indent="  "), indent="  ")


def _stays(one: Changed) -> bool:
    """Whether it was set to the same before; a value that was the default's before, and is set now, outlives that."""
    from headrace.client import ConfigOperation

    if _is_secret(one):
        return False
    if one.before is None:
        return one.after is None and _was_not_there(one)
    if one.after is None:  # a dry run, or it has not come yet
        return one.change.operation is ConfigOperation.SET and one.before.value == one.change.value and one.was_here
    return (one.before.value, one.before.source) == (one.after.value, one.after.source)


def _after(one: Changed) -> Text:
    from headrace.client import ConfigOperation, ConfigSource

    if _is_secret(one):
        return Text("(not set)" if one.change.operation is ConfigOperation.DELETE else "(secret)")
    if one.after is not None:
        notes = [setting_words(one.change.name, one.after.value), _same(one)]
        is_of_logger = one.after.source is ConfigSource.DYNAMIC_BROKER_LOGGER  # from above, and nobody tells where
        source = source_text(one.after.source)
        if one.change.operation is ConfigOperation.DELETE and source and not is_of_logger:
            notes[1:] = [f"{notes[1]}: {source}" if notes[1] else source]
        told = ", ".join(filter(None, notes))
        return Text.assemble(value_text(one.after), (f"  ({told})" if told else "", QUIET))
    match one.change.operation:
        case ConfigOperation.SET:
            words = setting_words(one.change.name, one.change.value)
            return Text.assemble(one.change.value or "(empty)", (f"  ({words})" if words else "", QUIET))
        case ConfigOperation.DELETE:
            return Text("(not set)")
        case ConfigOperation.APPEND:
            return Text(f"and {one.change.value}")
        case ConfigOperation.SUBTRACT:
            return Text(f"without {one.change.value}")


def _same(one: Changed) -> str:
    """What is to be said of a value that is the same as before; nothing if it is not."""
    if one.before is None or one.after is None or one.before.value != one.after.value:
        return ""
    if _stays(one):
        return "as it was"
    return "the same, now set here" if one.is_here else "the same, not set here any more"


def changed_json(changed: Sequence[Changed]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.change.name,
            "operation": one.change.operation.name.lower(),
            "value": None if _is_secret(one) else one.change.value,
            "before": None if one.before is None or _is_secret(one) else one.before.value,
            "after": None if one.after is None or _is_secret(one) else one.after.value,
        }
        for one in changed
    ]


def _is_secret(one: Changed) -> bool:
    return any(entry is not None and entry.is_sensitive for entry in (one.before, one.after))
