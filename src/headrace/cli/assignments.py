"""NAME=VALUE as people write it for settings, and what to say when a cluster does not take one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from headrace.cli import Misused
from headrace.cli.amounts import setting_value
from headrace.config import TOPIC, broker_settings, settings_named
from headrace.errors import Error, Refused

if TYPE_CHECKING:
    from headrace.client import ConfigChange


def changes(given: Sequence[str]) -> list[ConfigChange]:
    """What is to be set; `NAME+=VALUE` and `NAME-=VALUE` add to a list and take from it."""
    from headrace.client import ConfigChange, ConfigOperation

    found: dict[str, ConfigChange] = {}
    for text in given:
        name, separator, value = text.partition("=")
        name, operation = name.strip(), ConfigOperation.SET
        if name.endswith(("+", "-")):
            operation = ConfigOperation.APPEND if name.endswith("+") else ConfigOperation.SUBTRACT
            name = name[:-1].strip()
        if not separator or not name:
            raise Misused(f"'{text}' is no setting; write NAME=VALUE, as in retention.ms=7d")
        if name in found:
            raise Misused(f"{name} is given twice; leave out one of the two")
        found[name] = ConfigChange(name, setting_value(name, value.strip()), operation)
    return list(found.values())


def plain(given: Sequence[str]) -> dict[str, str]:
    """Names and values, where there is nothing yet to add to."""
    from headrace.client import ConfigOperation

    found = changes(given)
    for change in found:
        if change.operation is not ConfigOperation.SET:
            raise Misused(f"{change.name} of a new topic has nothing to add to or take from; write {change.name}=VALUE")
    return {change.name: change.value or "" for change in found}


def explained(refused: Refused, names: Iterable[str]) -> Refused:
    """A refusal of settings with the nearest name, where one of the names is nobody's."""
    if refused.error not in (Error.INVALID_CONFIG, Error.INVALID_REQUEST) or "did you mean" in str(refused):
        return refused
    for name in names:
        if near := nearest(name):
            return Refused(refused.error, f"{str(refused).rstrip('.')}; did you mean {near} instead of {name}?")
    # The one that the refusal names; of names that go on, as compression.gzip.level after compression, the whole one.
    known = sorted((name for name in names if any(settings_named(name))), key=len, reverse=True)
    known_name = next((name for name in known if name in str(refused)), next(iter(known), None))
    if known_name is None:
        return refused
    return Refused(refused.error, f"{str(refused).rstrip('.')}. See: headrace config explain {known_name}")


def nearest(name: str) -> str:
    """The known setting that a name that is not known may mean; empty if there is none, or the name is known."""
    if any(settings_named(name)):
        return ""
    known = [*TOPIC, *broker_settings()]
    return next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), "")


def removals(names: Sequence[str]) -> list[ConfigChange]:
    """What is to go back to its default."""
    from headrace.client import ConfigChange, ConfigOperation

    for name in names:
        if "=" in name:
            raise Misused(f"'{name}' has a value; to go back to the default only the name is wanted")
    return [ConfigChange(name, None, ConfigOperation.DELETE) for name in dict.fromkeys(names)]
