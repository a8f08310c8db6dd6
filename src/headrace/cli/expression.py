"""Expressions over a record, as in `value.total > 100 and headers.region == 'eu'`: read once, asked of every record.

A language of its own, so that nothing which a person pastes can do more than look at a record: no calls but those of
`FUNCTIONS`, no attributes but fields of JSON, and regular expressions in linear time (RE2).

    or, and, not                      both sides are true when they are not null, false, 0 or empty
    == != < <= > >=                   things of different kinds are unequal, and none is less than the other
    =~ !~                             a regular expression matches somewhere in a text
    in, not in                        an element of [a list], or a part of a text
    + - * / %                         of numbers
    topic partition offset timestamp key value headers size
    value.items[0].price              a field of a key or value that is JSON; null when there is no such field
    headers.name, headers['a-name']   the last header of that name
    timestamp > '2h', '2026-01-31'    a text beside a timestamp is a time
    len(x) lower(x) upper(x) number(x) text(x)
"""

from __future__ import annotations

import json
import operator
import re
import time
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.cli import Misused
from headrace.cli.amounts import moment_ms

if TYPE_CHECKING:
    from headrace.client import ConsumedRecord

DEPTH_MAX: Final = 50
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)
           |(?P<name>[A-Za-z_][A-Za-z_0-9]*)
           |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
           |(?P<sign>==|!=|<=|>=|=~|!~|&&|\|\||[-<>()\[\].,+*/%!=])
           |(?P<end>$)
           |(?P<bad>.))""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


class Seen:
    """A record as an expression sees it. Texts and JSON are made once, when they are first asked for."""

    __slots__ = ("_made", "record")

    def __init__(self, record: ConsumedRecord) -> None:
        self.record = record
        self._made: dict[str, Any] = {}

    def text(self, name: str) -> str | None:
        """The key or value as text; bytes that are no UTF-8 are shown as \\xff."""
        if name not in self._made:
            data: bytes | None = getattr(self.record, name)
            self._made[name] = None if data is None else data.decode(errors="backslashreplace")
        found: str | None = self._made[name]
        return found

    def parsed(self, name: str) -> Any:
        """The key or value as JSON; null when it is none."""
        place = f"{name} as JSON"
        if place not in self._made:
            try:
                self._made[place] = json.loads(getattr(self.record, name) or b"null")
            except (ValueError, RecursionError):
                self._made[place] = None
        return self._made[place]

    def headers(self) -> dict[str, str | None]:
        if "headers" not in self._made:
            self._made["headers"] = {
                name: None if value is None else value.decode(errors="backslashreplace")
                for name, value in self.record.headers
            }
        found: dict[str, str | None] = self._made["headers"]
        return found


Asked = Callable[[Seen], Any]


class _Term(NamedTuple):
    """A part of an expression: how to ask it, and what is known of it before."""

    ask: Asked
    is_time: bool = False
    literal: Any = None
    """Of a text or list that stands there as it is."""


NAMES: Final[dict[str, _Term]] = {
    "topic": _Term(lambda seen: seen.record.topic),
    "partition": _Term(lambda seen: seen.record.partition),
    "offset": _Term(lambda seen: seen.record.offset),
    "timestamp": _Term(lambda seen: seen.record.timestamp_ms, is_time=True),
    "key": _Term(lambda seen: seen.text("key")),
    "value": _Term(lambda seen: seen.text("value")),
    "headers": _Term(lambda seen: seen.headers()),
    "size": _Term(lambda seen: len(seen.record.key or b"") + len(seen.record.value or b"")),
}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


def _length(found: Any) -> int | None:
    return len(found) if isinstance(found, str | list | dict) else None


def _number(found: Any) -> float | None:
    try:
        return float(found) if isinstance(found, str) else _numeric(found)
    except ValueError:
        return None


FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "len": _length,
    "lower": lambda found: found.lower() if isinstance(found, str) else None,
    "upper": lambda found: found.upper() if isinstance(found, str) else None,
    "number": _number,
    "text": lambda found: None if found is None else shown(found),
}


def shown(found: Any) -> str:
    """What an expression gave, as text: nothing for null, JSON for what has parts."""
    if found is None:
        return ""
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, separators=(",", ":"))


class Expression:
    """An expression, ready to be asked. Misused when it can't be read: the sentence says where."""

    __slots__ = ("_ask", "source")

    def __init__(self, source: str, *, now_ms: int | None = None) -> None:
        self.source = source
        self._ask = _Reader(source, time.time_ns() // 1_000_000 if now_ms is None else now_ms).whole().ask

    def of(self, seen: Seen) -> Any:
        return self._ask(seen)

    def holds(self, record: ConsumedRecord) -> bool:
        return bool(self._ask(Seen(record)))


class _Reader:
    """Recursive descent: a method for each strength of binding, the weakest first."""

    __slots__ = ("_depth", "_kind", "_now_ms", "_position", "_source", "_start", "_token")

    def __init__(self, source: str, now_ms: int) -> None:
        self._source = source
        self._now_ms = now_ms
        self._position = 0
        self._depth = 0
        self._next()

    def whole(self) -> _Term:
        if self._kind == "end":
            raise Misused("The expression is empty; write one such as value.total > 100 or key == 'a'")
        term = self._or()
        if self._kind != "end":
            raise self._wrong("an operator such as == or and")
        return term

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _next(self) -> str:
        token = getattr(self, "_token", "")
        found = _TOKEN.match(self._source, self._position)
        assert found is not None
        assert found.lastgroup is not None
        self._kind, self._token = found.lastgroup, found[found.lastgroup]
        self._start, self._position = found.start(found.lastgroup), found.end()
        if self._kind == "bad":
            raise self._wrong("something else")
        return token

    def _take(self, *tokens: str) -> bool:
        if self._kind in ("name", "sign") and self._token in tokens:
            self._next()
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(f"'{token}'")

    def _wrong(self, wanted: str) -> Misused:
        there = "it ends" if self._kind == "end" else f"'{self._token}' stands"
        at = f"after {self._start} characters" if self._kind == "end" else f"at character {self._start + 1}"
        return Misused(f"The expression {self._source!r} can't be read: {there} {at}, where {wanted} should be")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Misused(f"The expression {self._source[:60]!r}… has more than {DEPTH_MAX} levels of brackets")

    # --- what binds -------------------------------------------------------------------------------------------------

    def _or(self) -> _Term:
        term = self._and()
        while self._take("or", "||"):
            term = _either(term.ask, self._and().ask)
        return term

    def _and(self) -> _Term:
        term = self._not()
        while self._take("and", "&&"):
            term = _both(term.ask, self._not().ask)
        return term

    def _not(self) -> _Term:
        negations = 0
        while self._take("not", "!"):
            negations += 1
        term = self._comparison()
        if not negations:
            return term
        ask, is_odd = term.ask, bool(negations % 2)
        return _Term(lambda seen: bool(ask(seen)) is not is_odd)

    def _comparison(self) -> _Term:
        left = self._sum()
        if self._kind not in ("sign", "name"):
            return left
        sign = self._token
        if sign in _COMPARED:
            self._next()
            right = self._sum()
            left, right = self._times(left, right)
            return _Term(_compared(_COMPARED[sign], left.ask, right.ask))
        if sign in ("=~", "!~"):
            self._next()
            return _Term(self._matching(left.ask, is_wanted=sign == "=~"))
        is_negated = self._take("not")
        if self._take("in"):
            right = self._sum()
            ask, among = left.ask, right.ask
            return _Term(lambda seen: _is_in(ask(seen), among(seen)) is not is_negated)
        if is_negated:
            raise self._wrong("'in'")
        if sign == "=":
            raise self._wrong("==")
        return left

    def _sum(self) -> _Term:
        term = self._product()
        while self._kind == "sign" and self._token in "+-":
            term = _Term(_calculated(_CALCULATED[self._next()], term.ask, self._product().ask))
        return term

    def _product(self) -> _Term:
        term = self._sign()
        while self._kind == "sign" and self._token in "*/%":
            term = _Term(_calculated(_CALCULATED[self._next()], term.ask, self._sign().ask))
        return term

    def _sign(self) -> _Term:
        if self._take("-"):
            self._deeper()
            ask = self._sign().ask
            self._depth -= 1
            return _Term(_calculated(operator.sub, lambda seen: 0, ask))
        return self._fields()

    def _fields(self) -> _Term:
        name = self._token if self._kind == "name" else ""
        term = self._single()
        if name in ("key", "value") and self._kind == "sign" and self._token in (".", "["):
            term = _Term(lambda seen: seen.parsed(name))
        while True:
            if self._take("."):
                if self._kind not in ("name", "number"):
                    raise self._wrong("the name of a field")
                term = _field(term.ask, self._next())
            elif self._take("["):
                if self._kind == "number" and self._token.isdecimal():
                    term = _element(term.ask, int(self._next()))
                elif self._kind == "text":
                    term = _field(term.ask, _text(self._next()))
                else:
                    raise self._wrong("a number, or a name in quotes")
                self._expect("]")
            else:
                return term

    def _single(self) -> _Term:
        if self._kind == "number":
            token = self._next()
            return _constant(float(token) if "." in token else int(token))
        if self._kind == "text":
            return _constant(_text(self._next()))
        if self._take("("):
            self._deeper()
            term = self._or()
            self._expect(")")
            self._depth -= 1
            return term
        if self._take("["):
            return self._list()
        if self._kind == "name" and self._token not in ("and", "or", "not", "in"):
            return self._named()
        raise self._wrong("a field, a text in quotes or a number")

    def _list(self) -> _Term:
        self._deeper()
        asks = []
        while not self._take("]"):
            asks.append(self._sum().ask)
            if not self._take(","):
                self._expect("]")
                break
        self._depth -= 1
        return _Term(lambda seen: [ask(seen) for ask in asks])

    def _named(self) -> _Term:
        if self._token in _CONSTANTS:
            return _constant(_CONSTANTS[self._next()])
        if self._token in NAMES:
            return NAMES[self._next()]
        if self._token not in FUNCTIONS:
            near = get_close_matches(self._token, [*NAMES, *FUNCTIONS], n=1)
            hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(NAMES)}"
            what = f"The expression {self._source!r} asks for '{self._token}', which is no part of a record"
            raise Misused(f"{what}; {hint}")
        function = FUNCTIONS[self._next()]
        self._expect("(")
        self._deeper()
        ask = self._or().ask
        self._expect(")")
        self._depth -= 1
        return _Term(lambda seen: function(ask(seen)))

    def _times(self, left: _Term, right: _Term) -> tuple[_Term, _Term]:
        """A text beside a timestamp is a time."""
        if left.is_time and isinstance(right.literal, str):
            return left, _constant(moment_ms(right.literal, self._now_ms))
        if right.is_time and isinstance(left.literal, str):
            return _constant(moment_ms(left.literal, self._now_ms)), right
        return left, right

    def _matching(self, ask: Asked, *, is_wanted: bool) -> Asked:
        import re2

        if self._kind != "text":
            raise self._wrong("a regular expression in quotes")
        source = self._next()[1:-1]  # as it stands: the backslashes are its own
        options = re2.Options()
        options.log_errors = False
        try:
            search = re2.compile(source, options=options).search
        except re2.error as error:
            why = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
            raise Misused(f"'{source}' is no regular expression: {why}") from None

        def matches(seen: Seen) -> bool:
            found = ask(seen)
            return found is not None and (search(shown(found)) is not None) is is_wanted

        return matches


def _text(token: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), token[1:-1], flags=re.DOTALL)


def _constant(value: Any) -> _Term:
    return _Term(lambda seen: value, literal=value)


def _either(left: Asked, right: Asked) -> _Term:
    return _Term(lambda seen: bool(left(seen)) or bool(right(seen)))


def _both(left: Asked, right: Asked) -> _Term:
    return _Term(lambda seen: bool(left(seen)) and bool(right(seen)))


def _field(ask: Asked, name: str) -> _Term:
    def field(seen: Seen) -> Any:
        found = ask(seen)
        return found.get(name) if isinstance(found, dict) else None

    return _Term(field)


def _element(ask: Asked, number: int) -> _Term:
    def element(seen: Seen) -> Any:
        found = ask(seen)
        return found[number] if isinstance(found, list) and number < len(found) else None

    return _Term(element)


def _numeric(found: Any) -> Any:
    """A number, or None: true and false are none."""
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _calculated(operation: Callable[[Any, Any], Any], left: Asked, right: Asked) -> Asked:
    def calculated(seen: Seen) -> Any:
        first, second = _numeric(left(seen)), _numeric(right(seen))
        if first is None or second is None:
            return None
        try:
            return operation(first, second)
        except (ZeroDivisionError, OverflowError):
            return None

    return calculated


_CALCULATED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compared(operation: Callable[[Any, Any], bool], left: Asked, right: Asked) -> Asked:
    is_order = operation not in (operator.eq, operator.ne)

    def compared(seen: Seen) -> bool:
        first, second = left(seen), right(seen)
        if _kind(first) is not _kind(second):
            return operation is operator.ne
        return (not is_order or _kind(first) in (str, float)) and operation(first, second)

    return compared


def _kind(found: Any) -> type:
    return float if _numeric(found) is not None else type(found)


def _is_in(found: Any, among: Any) -> bool:
    if isinstance(among, str):
        return isinstance(found, str) and found in among
    if isinstance(among, dict):
        return isinstance(found, str) and found in among
    return isinstance(among, list) and any(_kind(one) is _kind(found) and one == found for one in among)
