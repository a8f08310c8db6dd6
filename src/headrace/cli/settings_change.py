"""Settings of a cluster changed: what they were, what they are, and how that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.text import Text

from headrace.cli.amounts import setting_words
from headrace.cli.assignments import explained
from headrace.cli.columns import Column
from headrace.cli.output import NAME, QUIET, print_table, say
from headrace.cli.topic_view import source_text, value_text
from headrace.errors import Error, Refused

if TYPE_CHECKING:
    from headrace.client import Client, ConfigChange, ConfigEntry, ConfigResource


PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 0.0)
_PACKAGE: Final = "headrace."
_ROOT_LOGGER: Final = "root"
_SET_ON_RESOURCES: Final = frozenset({1, 2, 3, 6, 7, 8})
"""Sources of values that were set on the topic, broker or other thing itself, by Kafka's numbers."""


class Changed(NamedTuple):
    """A setting before and after; None where it is not known, as before it is set for the first time."""

    change: ConfigChange
    before: ConfigEntry | None
    after: ConfigEntry | None


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
    changed = [Changed(change, _entry_of(resource, change.name, before), None) for change in wanted]
    if dry_run:
        return changed
    # The controller has the change; the broker that is asked may hear of it a moment later.
    for pause_s in PAUSES_S:
        after = await _described(client, resource)
        changed = [one._replace(after=_entry_of(resource, one.change.name, after)) for one in changed]
        if all(_has_arrived(one) for one in changed):
            break
        await asyncio.sleep(pause_s)
    return [one if _has_arrived(one) else one._replace(after=None) for one in changed]


def _entry_of(resource: ConfigResource, name: str, entries: Mapping[str, ConfigEntry]) -> ConfigEntry | None:
    """What there is of a setting. A logger without a level of its own has that of the one above it; ours can be named
    without the package, which is the root of all of them."""
    from headrace.client import ResourceType

    if resource.type is not ResourceType.BROKER_LOGGER:
        return entries.get(name)
    is_ours = any(one.startswith(_PACKAGE) for one in entries)
    if is_ours and name not in entries and not name.startswith(_PACKAGE):
        name = _PACKAGE + name
    while name not in entries and "." in name:
        name = name.rpartition(".")[0]
    return entries.get(name, entries.get(_ROOT_LOGGER))


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
    from headrace.client import ConfigOperation, ConfigSource

    if one.after is not None and one.after.source is ConfigSource.DYNAMIC_BROKER_LOGGER:
        return True  # which no controller has a part in
    match one.change.operation:
        case ConfigOperation.SET:
            return one.after is not None and (one.after.value == one.change.value or one.after.is_sensitive)
        case ConfigOperation.DELETE:
            was_set = one.before is not None and one.before.source in _SET_ON_RESOURCES
            return one.after is None or not was_set or one.before is None or one.after.source != one.before.source
        case _:
            return one.before is None or one.after is None or one.after.value != one.before.value


async def _described(client: Client, resource: ConfigResource) -> dict[str, ConfigEntry]:
    return (await client.admin.describe_configs([resource])).get(resource, {})


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
    print_table([Column("", NAME), Column("", QUIET), Column("", QUIET), Column("")], rows, indent="  ")


def _stays(one: Changed) -> bool:
    """Whether it was set to the same before; a value that was the default's before, and is set now, outlives that."""
    from headrace.client import ConfigOperation

    if one.before is None or _is_secret(one):
        return False
    if one.after is None:  # a dry run, or it has not come yet
        is_same = one.change.operation is ConfigOperation.SET and one.before.value == one.change.value
        return is_same and one.before.source in _SET_ON_RESOURCES
    return (one.before.value, one.before.source) == (one.after.value, one.after.source)


def _after(one: Changed) -> Text:
    from headrace.client import ConfigOperation, ConfigSource

    if _is_secret(one):
        return Text("(not set)" if one.change.operation is ConfigOperation.DELETE else "(secret)")
    if one.after is not None:
        words = setting_words(one.change.name, one.after.value)
        notes = [words] if words else []
        if one.before is not None and one.before.value == one.after.value:
            notes.append("as it was" if _stays(one) else "the same, now set here")
        is_of_logger = one.after.source is ConfigSource.DYNAMIC_BROKER_LOGGER  # from above, and nobody tells where
        source = source_text(one.after.source)
        if one.change.operation is ConfigOperation.DELETE and source and not is_of_logger:
            notes.append(source)
        return Text.assemble(value_text(one.after), (f"  ({', '.join(notes)})" if notes else "", QUIET))
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
