"""What a node has not imported yet, because nobody has asked for it (`broker/later.py`).

A process that is to stay imports it soon after its start: when files are replaced by those of another version, half a
node of that one must not come in; and at the limit of open files nothing could.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Final

import headrace

logger = logging.getLogger(__name__)

PACKAGES: Final = (
    "broker",
    "config",
    "coordinator",
    "metadata",
    "metrics",
    "net",
    "protocol",
    "raft",
    "replica",
    "storage",
)
PAUSE_S: Final = 0.02
"""Between two of them, which take a millisecond or two each: nobody notices."""


async def import_rest() -> None:
    for name in list(missing()):
        try:
            import_module(name)
        except Exception:
            logger.exception("%s can't be imported, which will be missed when somebody asks for it", name)
        await asyncio.sleep(PAUSE_S)
    logger.debug("everything is imported")


def import_now(*packages: str) -> None:
    """All of it at once, with that of other packages of ours."""
    for name in list(missing(*packages)):
        import_module(name)


def missing(*packages: str) -> Iterator[str]:
    (root,) = headrace.__path__
    for package in (*PACKAGES, *packages):
        for folder, _, files in os.walk(os.path.join(root, package)):
            inside = os.path.relpath(folder, os.path.dirname(root)).replace(os.sep, ".")
            for file in sorted(files):
                name, extension = os.path.splitext(file)
                module = inside if name == "__init__" else f"{inside}.{name}"
                if extension == ".py" and module not in sys.modules:
                    yield module
