"""What `kernel` needs of the module `cython` where Cython is not installed: decorators that do nothing."""

from __future__ import annotations

from typing import Any

compiled = False


def declare(kind: object, value: Any) -> Any:
    return value


def exceptval(*_: object, **__: object) -> Any:
    return _unchanged


def _unchanged(definition: Any) -> Any:
    return definition


cclass = cfunc = inline = nogil = _unchanged


def __getattr__(name: str) -> None:
    """The C types, which stand in annotations that nobody evaluates and in `declare`."""
    if name.startswith("__"):
        raise AttributeError(name)
