"""What the logs of all directories of a node share: open files, memory for indexes, and where settings come from."""

from __future__ import annotations

from collections.abc import Callable

from headrace.config import LogConfig
from headrace.plain import plain
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.log_options import LogOptions


@plain
class Shared:
    handles: Handles
    indexes: IndexCache
    options: LogOptions
    config_of: Callable[[str], LogConfig]
    """The settings of a topic, by its name."""
