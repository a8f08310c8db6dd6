"""What people write on a command line, looked at in one place: names are not empty, and text is UTF-8.

What a parameter takes is said by its metavar. TEXT becomes bytes of a record or between records, and FILE is for the
system: both are taken as they are. The rest goes into requests, which can carry no other bytes than those of UTF-8.
"""

from __future__ import annotations

import os
from typing import Any, Final

from headrace.cli import Misused
from headrace.cli.wrong_use import name_of

NAMES: Final = frozenset({"TOPIC", "GROUP", "ID", "NAME", "PATTERN"})
_AS_THEY_ARE: Final = frozenset({"TEXT", "NAME=TEXT", "FILE"})


def checked(command: Any) -> Any:
    """A command of Typer's, with those below it, that refuses what can be no text and no name."""
    for parameter in command.params:
        if parameter.metavar is not None and parameter.metavar not in _AS_THEY_ARE:
            parameter.callback = parameter.callback or _check
    for below in getattr(command, "commands", {}).values():
        checked(below)
    return command


def _check(context: Any, parameter: Any, value: Any) -> Any:
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str):
            if not text and parameter.metavar in NAMES:
                raise Misused(f"{name_of(parameter)} is empty; it needs a name")
            require_utf8(text, name_of(parameter))
    return value


def require_utf8(text: str, name: str) -> None:
    """Bytes that are none stand in an argument as halves of characters (PEP 383)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = as_bytes(text).decode(errors="backslashreplace")
        raise Misused(f"{name} is '{shown}', which is no UTF-8, as every name and setting must be") from None


def as_bytes(text: str) -> bytes:
    """The bytes that were typed, whatever they are."""
    return os.fsencode(text)
