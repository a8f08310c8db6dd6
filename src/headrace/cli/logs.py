"""What a node says while it runs: for people on a terminal, one JSON object a line for everything else."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import time
from collections.abc import Sequence
from typing import Final, TextIO

from headrace.errors import HeadraceError

LEVELS: Final = ("debug", "info", "warning", "error")
_COLOURS: Final = {"DEBUG": "2", "INFO": "36", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}
_ROOT: Final = "headrace"
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def set_up(stream: TextIO, levels: Sequence[str], form: str) -> None:
    """`levels` are each a level, or a module and its level: `debug`, `net=warning`. `form` is human, json or auto."""
    is_terminal = stream.isatty()
    handler = logging.StreamHandler(stream)
    if form == "json" or (form == "auto" and not is_terminal):
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(HumanFormatter(coloured=is_terminal))
    logging.raiseExceptions = False  # of a log that can't be written, to a full disk say
    root = logging.getLogger(_ROOT)
    root.handlers, root.propagate = [handler], False
    root.setLevel(logging.INFO)
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.handlers, asyncio_logger.propagate = [handler], False
    for text in levels:
        module, level = parse_level(text)
        logging.getLogger(f"{_ROOT}.{module}" if module else _ROOT).setLevel(level)


def parse_level(text: str) -> tuple[str, int]:
    """The module, without `headrace.`, and the level. Raises HeadraceError with what is wrong."""
    module, separator, level = text.rpartition("=")
    if level.lower() not in LEVELS or (separator and not module):
        raise HeadraceError(
            f"'{text}' is no log level. Use one of {', '.join(LEVELS)}, or a module and its level, as in net=debug."
        )
    module = module.removeprefix(_ROOT).removeprefix(".")
    if module and not _is_module(f"{_ROOT}.{module}"):
        raise HeadraceError(f"There is no module '{module}' to log; {_nearest(module)}")
    return module, logging.getLevelNamesMapping()[level.upper()]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _nearest(module: str) -> str:
    """Of those beside it: the module that it may mean, or where to find the names."""
    import pkgutil  # only on the way to an error, so not at import
    from difflib import get_close_matches

    package, dot, _ = module.rpartition(".")
    found = importlib.util.find_spec(f"{_ROOT}{dot}{package}") if _is_module(f"{_ROOT}{dot}{package}") else None
    folders = (found.submodule_search_locations if found else None) or []
    near = get_close_matches(module, [f"{package}{dot}{each.name}" for each in pkgutil.iter_modules(folders)], n=1)
    return f"did you mean {near[0]}?" if near else "the log names them, as in net or broker.node."


class HumanFormatter(logging.Formatter):
    """`12:03:07.412 warning  net.listener  refusing a connection`"""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = f"{record.levelname.lower():<7}"
        if self._coloured:
            level = f"\033[{_COLOURS.get(record.levelname, '0')}m{level}\033[0m"
        line = f"{at}.{int(record.msecs):03d} {level} {_module(record):<18} {_on_one_line(record.getMessage())}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _on_one_line(message: str) -> str:
    """What clients sent may be in it, and neither begins a line nor is obeyed by a terminal."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), message)


class JsonFormatter(logging.Formatter):
    """`{"time":"2026-01-31T12:03:07.412Z","level":"warning","module":"net.listener","message":"..."}`"""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "module": _module(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _module(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{_ROOT}.")
