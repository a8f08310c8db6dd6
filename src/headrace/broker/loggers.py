"""The levels of this node's loggers, which can be changed while it runs and are forgotten when it stops.

`root` is the logger over all of Headrace's, and a module can be named with `headrace.` before it or without. The levels
are named as in Kafka.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Final, Protocol
from weakref import WeakValueDictionary

import headrace
from headrace.config.setting import nearest
from headrace.errors import Error, Refused

ROOT: Final = "root"
PACKAGE: Final = "headrace"
TRACE: Final = 5
LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class Follows(Protocol):
    def follow(self) -> None:
        """Levels have changed."""


_followers: Final[WeakValueDictionary[int, Follows]] = WeakValueDictionary()


def levels() -> dict[str, str]:
    """The level that each logger has, of its own or from the one above it, by name."""
    found = {ROOT: _level_name(logging.getLogger(PACKAGE).getEffectiveLevel())}
    for name in sorted(_names()):
        found[name] = _level_name(logging.getLogger(name).getEffectiveLevel())
    return found


def check_level(name: str, level: str | None) -> None:
    """Refuses a level that there is not, or a logger. A level of None is none of its own."""
    if _full_name(name) is None:
        raise Refused(Error.INVALID_CONFIG, f"There is no logger {name}; {_hint(name)}")
    if level is None:
        if name == ROOT:
            raise Refused(Error.INVALID_REQUEST, "The root logger must have a level; set another one.")
    elif level.upper() not in LEVELS:
        raise Refused(Error.INVALID_CONFIG, f"{level} is no log level; there are {', '.join(LEVELS)}.")


def set_levels(wanted: Mapping[str, str | None]) -> None:
    """They were checked."""
    for name, level in wanted.items():
        full_name = _full_name(name)
        assert full_name is not None
        logging.getLogger(full_name).setLevel(logging.NOTSET if level is None else LEVELS[level.upper()])
    for follower in list(_followers.values()):
        follower.follow()


def tell_changes_to(follower: Follows) -> None:
    """From now on, while it lives."""
    _followers[id(follower)] = follower


def _names() -> list[str]:
    """Also those that are only above others, which have a level when they get one."""
    return [name for name in logging.root.manager.loggerDict if name.startswith(f"{PACKAGE}.")]


def _full_name(name: str) -> str | None:
    if name in (ROOT, PACKAGE):
        return PACKAGE
    full_name = name if name.startswith(f"{PACKAGE}.") else f"{PACKAGE}.{name}"
    is_there = full_name in logging.root.manager.loggerDict or _is_module(full_name)
    return full_name if is_there else None


def _hint(name: str) -> str:
    """The one that was meant, perhaps, with or without the package as the given one has it."""
    package = "" if name.startswith(f"{PACKAGE}.") else f"{PACKAGE}."
    near = nearest(name, [ROOT, *(known.removeprefix(package) for known in _names())])
    return f"did you mean {near}?" if near else "describe the loggers to see them."


def _is_module(full_name: str) -> bool:
    """Many are loaded when they are first needed, and have no logger before.

    By its file: importlib would import all that is above it, for whoever names something that there is not.
    """
    _, *names = full_name.split(".")
    if not all(name.isidentifier() for name in names):
        return False
    path = os.path.join(*headrace.__path__, *names)
    return os.path.isfile(f"{path}.py") or os.path.isfile(os.path.join(path, "__init__.py"))


def _level_name(level: int) -> str:
    for name, known in reversed(LEVELS.items()):
        if level >= known:
            return name
    return "TRACE"
