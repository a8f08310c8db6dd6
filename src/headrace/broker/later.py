"""Parts of a node that are imported and made when they are first asked for something.

A node serves eighty APIs, and most clients call ten of them: it starts sooner without what answers the others.

    security: Security = later("headrace.broker.security:Security", loader)
    Route("DescribeAcls", security.describe_acls)

To the type checker it is what it will be. Until then it has methods and nothing else, and they may be called, or handed
on to be. For what is called all the time, as produce and fetch are, the detour is too long.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def later(target: str, /, *given: Any, **named: Any) -> Any:
    """`target` is a class, as "module:class"; the rest is what it is made of."""
    return _Later(target, given, named)


class _Later:
    __slots__ = ("_given", "_made", "_named", "_target")

    def __init__(self, target: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._target = target
        self._given = given
        self._named = named
        self._made: Any = None

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            made = self._make() if self._made is None else self._made
            return getattr(made, method)(*given, **named)

        return call

    def _make(self) -> Any:
        module, _, name = self._target.partition(":")
        self._made = getattr(import_module(module), name)(*self._given, **self._named)
        return self._made

    def __repr__(self) -> str:
        return f"<{self._target}, {'later' if self._made is None else 'made'}>"
