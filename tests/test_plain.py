"""Plain classes and named tuples behave as those of the standard library that they stand for."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import typing
from pathlib import Path
from typing import Any, cast

import pytest

import headrace
from headrace.named_tuple import NamedTuple
from headrace.plain import field, plain, plain_frozen, replace, values_of


@plain
class Place:
    """Where something is."""

    topic: str
    partition: int = 0
    offsets: list[int] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclasses.dataclass(slots=True)
class PlaceOfDataclasses:
    topic: str
    partition: int = 0
    offsets: list[int] = dataclasses.field(default_factory=list)


@plain_frozen
class Key:
    name: str
    number: int


@plain
class Checked:
    number: int

    def __post_init__(self) -> None:
        self.number *= 2


@plain
class Nothing:
    pass


def test_a_plain_class_has_the_fields_the_defaults_and_the_methods_of_a_dataclass() -> None:
    place = Place("t")
    assert (place.topic, place.partition, place.offsets, place.title) == ("t", 0, [], "t-0")
    assert Place("t", 1, offsets=[3]) == Place(offsets=[3], partition=1, topic="t")
    assert Place("t").offsets is not place.offsets
    assert Place("t") != Place("t", 1)
    assert Place("t") != cast("object", PlaceOfDataclasses("t"))
    assert repr(place).replace("Place", "PlaceOfDataclasses") == repr(PlaceOfDataclasses("t"))
    assert Place.__match_args__ == PlaceOfDataclasses.__match_args__
    assert (Place.__doc__, Place.__qualname__, Place.__module__) == ("Where something is.", "Place", __name__)
    assert Checked(2).number == 4
    assert Nothing() == Nothing()


@pytest.mark.parametrize("values_before", range(3))
@pytest.mark.parametrize(
    ("given", "named", "why"),
    [
        ((), {}, "missing 1 required positional argument: 'topic'"),
        (("t", 1, 2), {}, "takes from 2 to 3 positional arguments but 4 were given"),
        (("t",), {"colour": 1}, "unexpected keyword argument 'colour'"),
        (("t",), {"topic": "u"}, "multiple values for argument 'topic'"),
        ((), {"partition": 1, "colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_a_plain_class_refuses_what_a_dataclass_does(
    values_before: int, given: tuple[Any, ...], named: dict[str, Any], why: str
) -> None:
    @plain
    class Fresh:
        topic: str
        partition: int = 0

    for _ in range(values_before):
        Fresh("t")
    with pytest.raises(TypeError, match=why):
        Fresh(*given, **named)
    with pytest.raises(AttributeError):
        Fresh("t").colour = 1  # type: ignore[attr-defined]


def test_what_makes_plain_values_is_compiled_with_the_second_one() -> None:
    @plain
    class Fresh:
        number: int
        others: list[int] = field(default_factory=list)

    values = [Fresh(1), Fresh(1), Fresh(1)]
    assert Fresh.__init__.__code__.co_varnames == ("self", "number", "others")
    assert all(value == Fresh(1, []) for value in values)
    assert len({id(value.others) for value in values}) == 3


def test_only_a_frozen_plain_value_is_a_key() -> None:
    assert {Key("a", 1): "found"}[Key("a", 1)] == "found"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Place("t"))


def test_plain_values_are_replaced_copied_and_matched() -> None:
    place = Place("t", 1, [2])
    assert replace(place, partition=3) == dataclasses.replace(place, partition=3) == Place("t", 3, [2])
    assert dataclasses.asdict(place) == values_of(place)
    assert [field.name for field in dataclasses.fields(Place)] == ["topic", "partition", "offsets"]
    assert values_of(place) == {"topic": "t", "partition": 1, "offsets": [2]}
    assert copy.deepcopy(place) == place
    assert pickle.loads(pickle.dumps(place)) == place
    match place:
        case Place(topic, partition):
            assert (topic, partition) == ("t", 1)
        case _:
            pytest.fail("it does not match")


class Range(NamedTuple):
    """From, and to."""

    start: int
    end: int = 10
    unit: str = "B"

    @property
    def size(self) -> int:
        return self.end - self.start


class RangeOfTyping(typing.NamedTuple):
    start: int
    end: int = 10
    unit: str = "B"


class Named(Range):
    """A subclass adds no fields."""

    __slots__ = ()


def test_a_named_tuple_is_one_of_typing() -> None:
    examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1,), {}),
        ((1, 2), {"unit": "s"}),
        ((), {"end": 3, "start": 1}),
    ]
    for given, named in examples:
        ours, theirs = Range(*given, **named), RangeOfTyping(*given, **named)
        assert ours == tuple(theirs)
        assert hash(ours) == hash(theirs)
        assert repr(ours).replace("Range", "RangeOfTyping") == repr(theirs)
        assert ours._asdict() == theirs._asdict()
        assert ours._replace(end=7) == tuple(theirs._replace(end=7))
    assert Range._fields == RangeOfTyping._fields == Range.__match_args__
    assert Range._make([1, 2, "s"]) == (1, 2, "s")
    assert (Range.__doc__, Range.__qualname__, Range.__module__) == ("From, and to.", "Range", __name__)
    start, end, _ = one = Range(1)
    assert (start, end, one.start, one.size) == (1, 10, 1, 9)
    assert isinstance(one, tuple)
    assert sorted([Range(2), Range(1)]) == [(1, 10, "B"), (2, 10, "B")]


def test_a_named_tuple_refuses_what_one_of_typing_does() -> None:
    for make in (Range, RangeOfTyping):
        with pytest.raises(TypeError):
            make()  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            make(1, colour=2)  # type: ignore[call-arg]
        with pytest.raises(AttributeError):
            make(1).start = 2  # type: ignore[misc]
        with pytest.raises(AttributeError):
            make(1).colour = 2  # type: ignore[union-attr]


def test_named_tuples_are_copied_and_matched_and_have_subclasses() -> None:
    one = Range(1, 2)
    assert copy.deepcopy(one) == one
    again = pickle.loads(pickle.dumps(one))
    assert (again, type(again)) == (one, Range)
    match one:
        case Range(start, end):
            assert (start, end) == (1, 2)
        case _:
            pytest.fail("it does not match")
    named = Named(1, 2)
    assert (type(named), named.size, named) == (Named, 1, one)
    assert type(named._replace(end=3)) is Named


def test_their_fields_are_in_the_body_of_the_class_with_any_python() -> None:
    """From 3.14 on, a body has its annotations only where they are text (PEP 749)."""
    users = [
        path
        for path in Path(headrace.__path__[0]).rglob("*.py")
        if re.search(r"^from headrace\.(plain|named_tuple) import", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(users) >= 50
    assert not [path for path in users if "from __future__ import annotations\n" not in path.read_text("utf-8")]
