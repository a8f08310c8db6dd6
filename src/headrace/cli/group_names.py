"""Groups by their names and patterns, for commands and for the shell that completes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connection import (
    COMPLETION_TIMEOUT_S,
    DEFAULT_BOOTSTRAP,
    NAMES_COMPLETED_MAX,
    VARIABLE,
    is_pattern,
    run,
)
from headrace.errors import Error, HeadraceError, Refused

if TYPE_CHECKING:
    from headrace.client.admin import GroupListing


def matching_groups(there: Mapping[str, GroupListing], wanted: Iterable[str]) -> dict[str, GroupListing]:
    """Raises when a name is not there, with the nearest one, or when a pattern matches nothing."""
    found: dict[str, GroupListing] = {}
    for text in wanted:
        if text in there:
            found[text] = there[text]
        elif not is_pattern(text):
            raise unknown_group(text, there)
        else:
            matched = {name: listing for name, listing in there.items() if fnmatchcase(name, text)}
            if not matched:
                raise HeadraceError(f"No group matches '{text}'. See what is there with `headrace group list`.")
            found |= matched
    return {name: found[name] for name in sorted(found)}


def unknown_group(name: str, names: Iterable[str]) -> Refused:
    near = get_close_matches(name, list(names), n=1)
    hint = f"did you mean {near[0]}?" if near else "see what is there with `headrace group list`."
    return Refused(Error.GROUP_ID_NOT_FOUND, f"There is no group '{name}'; {hint}")


def _complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    bootstrap = context.params.get("bootstrap") or os.environ.get(VARIABLE) or DEFAULT_BOOTSTRAP
    timeouts: dict[str, Any] = dict.fromkeys(("connect_timeout_s", "request_timeout_s"), COMPLETION_TIMEOUT_S)
    try:
        names = run(bootstrap, lambda client: client.admin.list_groups(failures={}), once=True, **timeouts)
    except HeadraceError:
        return []
    return [name for name in names if name.startswith(incomplete)][:NAMES_COMPLETED_MAX]


GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=_complete_groups)]
GroupNames = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", help="Groups, or patterns such as 'billing-*'.", autocompletion=_complete_groups),
]
GroupsOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATTERN", help="Only these, as in 'billing-*'.", autocompletion=_complete_groups),
]
