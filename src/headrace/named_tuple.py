"""`typing.NamedTuple`, made ten times faster; to the type checker it is that one. PURE.

Those of `typing` compile each annotation and a constructor when the class is made, a tenth of a millisecond in all, and
a node has sixty of them. These have the constructor alone made, with their first value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter
    from functools import cache
    from types import FunctionType

    class _NamedTupleType(type):
        """Makes a tuple of a class under NamedTuple; a class of another type would be slower to ask for instances."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            names = tuple(body["__annotations__"])
            defaults = tuple(body.pop(field) for field in names if field in body)

            def first_new(asked, *given, **named):
                made.__new__ = staticmethod(_constructor(body["__qualname__"], names, defaults))
                return made.__new__(asked, *given, **named)

            body |= {field: _tuplegetter(place, "") for place, field in enumerate(names)}
            body |= {"__slots__": (), "__match_args__": names, "_fields": names, "__new__": first_new}
            made = type(name, (_Tuple,), body)
            return made

    class NamedTuple(metaclass=_NamedTupleType):
        __slots__ = ()

    class _Tuple(tuple):
        """What they share."""

        __slots__ = ()

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, /, **changes):
            return type(self)(**{**self._asdict(), **changes})

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({shown})"

    def _constructor(title, names, defaults):
        code = _code(len(names)).replace(co_filename=f"<{title}>", co_varnames=("cls", *names))
        return FunctionType(code, {"make": tuple.__new__}, "__new__", defaults)

    @cache
    def _code(count):
        """Constructors of as many fields differ by the names of these alone, and to compile one takes 0.1 ms."""
        given = ", ".join(f"field{place}" for place in range(count))
        return eval(f"lambda cls, {given}: make(cls, ({given},))").__code__
