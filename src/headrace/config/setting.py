"""One setting: its name, its type, its bounds, what it does, and how its text is read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Any, Final

from headrace.errors import Error, Refused

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_BITS: Final = {4: 16, 3: 32, 5: 64}  # by Kind
# The unit is the last word of a name; these are the ones that one setting may have in several of.
_MILLISECONDS: Final = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}


class Kind(IntEnum):
    """What a value is, with the numbers that DescribeConfigs has for it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """What a setting is set on."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


class Change(Enum):
    """When a new value takes effect, and on whom it can be set while brokers run (Kafka's update modes)."""

    RESTART = "at a restart"
    BROKER = "at once, on one broker"
    CLUSTER = "at once, on all brokers or on one"
    TOPIC = "at once"


class Effect(Enum):
    """What becomes of a value."""

    HONOURED = "honoured"
    STORED = "stored, and has no effect"
    REFUSED = "refused, unless it is the default"


class Setting:
    """A row of the table of settings. `synonyms` are the broker's settings that a topic's setting defaults to.

    One that can have no effect here says `why`, and takes any value that Kafka would take. One that `refuses` says why
    too, and takes no value but the default: to take another would be a promise that is not kept.
    """

    __slots__ = (
        "also",
        "change",
        "choices",
        "default",
        "doc",
        "kafka",
        "kind",
        "least",
        "most",
        "name",
        "pattern",
        "refuses",
        "scope",
        "synonyms",
        "why",
    )

    def __init__(
        self,
        kind: Kind,
        default: Any,
        doc: str,
        *,
        least: float | None = None,
        most: float | None = None,
        also: tuple[float, ...] = (),
        choices: type[Enum] | tuple[str, ...] | None = None,
        pattern: str = "",
        synonyms: tuple[str, ...] = (),
        change: Change = Change.RESTART,
        kafka: str = "",
        why: str = "",
        refuses: bool = False,
        name: str = "",
        scope: Scope = Scope.BROKER,
    ) -> None:
        self.name = name
        self.scope = scope
        self.kind = kind
        self.default = default
        self.doc = doc
        self.least = least
        self.most = most
        self.also = also
        self.choices = choices
        self.pattern = pattern
        """What each word of a list looks like, as a regular expression."""
        self.synonyms = synonyms
        self.change = change
        self.kafka = kafka
        self.why = why
        self.refuses = refuses

    def __repr__(self) -> str:
        return f"<{self.scope.value} setting {self.name}>"

    def parse(self, text: str) -> Any:
        """The value that a text stands for. Raises Refused with a sentence for whoever wrote the text."""
        value = self._parse(text.strip())
        if self.refuses and not self._is_default(value):
            default = "unset" if self.default in (None, "", ()) else self.format(self.default)
            raise Refused(Error.INVALID_CONFIG, f"{self.name} must stay {default}: {self.why}")
        return value

    def _is_default(self, value: Any) -> bool:
        if self.kind is Kind.LIST:
            return sorted(value) == sorted(self.default or ())
        return bool(value == self.default) or (self.default is None and value == "")

    def _parse(self, text: str) -> Any:
        match self.kind:
            case Kind.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._refused("true or false", text)
                return text.lower() == "true"
            case Kind.INT | Kind.LONG | Kind.SHORT:
                return self._bounded(self._whole(text), text)
            case Kind.DOUBLE:
                return self._bounded(self._number(text), text)
            case Kind.LIST:
                return self._words(text)
            case _:
                return self._chosen(text)

    def format(self, value: Any) -> str:
        """The text that `parse` reads back as this value, written as Kafka writes it."""
        if value is None:
            return ""
        match self.kind:
            case Kind.BOOLEAN:
                return "true" if value else "false"
            case Kind.DOUBLE:
                return _double(value)
            case Kind.LIST:
                return ",".join(value)
            case _:
                return str(value.value if isinstance(value, Enum) else value)

    @property
    def honoured(self) -> bool:
        return not self.why

    @property
    def effect(self) -> Effect:
        if self.refuses:
            return Effect.REFUSED
        return Effect.HONOURED if self.honoured else Effect.STORED

    @property
    def is_dynamic(self) -> bool:
        return self.change is not Change.RESTART

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    @property
    def unit(self) -> str:
        """What a number of this setting counts, from the last word of its name; empty when the name does not say."""
        if self.name.endswith(("per.second",)):
            return "bytes a second"
        last = self.name.rpartition(".")[2]
        return {"ms": "milliseconds", "size": "bytes"}.get(last, last if last in ("bytes", "minutes", "hours") else "")

    @property
    def allowed(self) -> str:
        """The values that it takes, in words."""
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.choices is not None:
            names = ", ".join(self._choice_texts())
            return f"a list of {names}, or empty" if self.kind is Kind.LIST else f"one of {names}"
        whole = "a whole number"
        what = {Kind.INT: whole, Kind.SHORT: whole, Kind.LONG: whole, Kind.DOUBLE: "a number"}.get(self.kind)
        if what is None:
            return "a list, separated by commas" if self.kind is Kind.LIST else "a text"
        return what + (f" of {self.unit}" if self.unit else "") + self._bounds()

    def broker_twins(self) -> list[Setting]:
        """The broker's settings that stand behind this topic's setting, the one that wins first.

        The last one has the default, in its own unit; the others are unset until someone sets them.
        """
        twins = []
        for synonym in self.synonyms:
            scale = self.scale_of(synonym)
            last = synonym == self.synonyms[-1]
            twins.append(
                Setting(
                    self.kind if scale == 1 else Kind.INT,
                    (self.default // scale if scale != 1 else self.default) if last else None,
                    f"What `{self.name}` is for topics that do not set it. {self.doc}",
                    least=self.least if scale == 1 or self.least is None else (-1 if self.least < 0 else self.least),
                    most=self.most if scale == 1 else INT32_MAX,
                    also=self.also,
                    choices=self.choices,
                    pattern=self.pattern,
                    # Of several names the first can be set while brokers run, as in Kafka.
                    change=Change.CLUSTER if synonym == self.synonyms[0] else Change.RESTART,
                    kafka=self.kafka,
                    why=self.why,
                    refuses=self.refuses,
                    name=synonym,
                )
            )
        return twins

    def scale_of(self, synonym: str) -> int:
        """How many of this setting's unit one of a synonym's unit is: 3,600,000 for log.retention.hours."""
        ours, theirs = (_MILLISECONDS.get(name.rpartition(".")[2]) for name in (self.name, synonym))
        return theirs // ours if ours and theirs else 1

    def _whole(self, text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()):
            raise self._refused(self.allowed, text)
        value = int(text) if len(digits) < 20 else INT64_MAX + 1
        size = _BITS[self.kind]
        if not -(1 << size - 1) <= value < 1 << size - 1:
            raise self._refused(f"a whole number that fits in {size} bits", text)
        return value

    def _number(self, text: str) -> float:
        try:
            if "_" in text:
                raise ValueError
            value = float(text)
        except ValueError:
            raise self._refused(self.allowed, text) from None
        if value != value:  # not a number compares with nothing, so bounds can't refuse it
            raise self._refused(self.allowed, text)
        return value

    def _bounded(self, value: float, text: str) -> float:
        inside = (self.least is None or value >= self.least) and (self.most is None or value <= self.most)
        if not inside and value not in self.also:
            raise self._refused(self.allowed, text)
        return value

    def _words(self, text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",")) if text else ()
        if "" in words:
            raise self._refused("a list without an empty entry", text)
        if self.choices is not None:
            words = tuple(dict.fromkeys(words))  # as in Kafka, what is chosen twice is chosen
        if len(set(words)) < len(words):
            raise self._refused("a list in which nothing stands twice", text)
        if self.choices is not None and not set(words) <= set(self._choice_texts()):
            raise self._refused(self.allowed, text)
        if self.pattern and not all(re.fullmatch(self.pattern, word) for word in words):
            raise self._refused(f"a list of words like {self.pattern}", text)
        return words

    def _chosen(self, text: str) -> Any:
        if self.choices is None:
            return text
        if text not in self._choice_texts():
            raise self._refused(self.allowed, text)
        return text if isinstance(self.choices, tuple) else self.choices(text)

    def _choice_texts(self) -> Iterable[str]:
        assert self.choices is not None
        return self.choices if isinstance(self.choices, tuple) else [choice.value for choice in self.choices]

    def _bounds(self) -> str:
        least, most = self.least, self.most
        also = "".join(f", or {value}" for value in self.also)
        if least is not None and most is not None:
            return f" from {least} to {most}{also}"
        if least is not None:
            return f", at least {least}{also}"
        return f", at most {most}{also}" if most is not None else also

    def _refused(self, allowed: str, text: str) -> Refused:
        shown = "a value that is none" if self.kind is Kind.PASSWORD else repr(text)
        return Refused(Error.INVALID_CONFIG, f"{self.name} must be {allowed}, not {shown}.")


_NAME_LENGTH_MAX = 200
"""A longer name is near to none, and to look for what is near takes time that a stranger could make us spend."""


def unknown(name: str, known: Iterable[str], scope: Scope | None = None) -> Refused:
    """The refusal of a name that no setting (of this scope) has, with the nearest one that there is."""
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else "see them all with: headrace config list"
    return Refused(Error.INVALID_CONFIG, f"There is no {f'{scope.value} ' if scope else ''}setting {name!r}; {hint}")


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The name that was meant, perhaps; empty when none is as like it (1 is the same)."""
    from difflib import get_close_matches  # only on the way to an error, so not at import

    if len(name) >= _NAME_LENGTH_MAX:
        return ""
    return next(iter(get_close_matches(name.replace("_", "."), list(known), n=1, cutoff=likeness)), "")


def _double(value: float) -> str:
    mantissa, e, exponent = repr(float(value)).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}" if e else mantissa
