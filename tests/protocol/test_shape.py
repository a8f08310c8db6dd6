"""The notation that messages are written in, and what is generated from it."""

from pathlib import Path

import pytest

from headrace.protocol import messages, stubs
from headrace.protocol.apis import all_apis, find_api
from headrace.protocol.shape import FRESH, NOUNS, Kind, ShapeError, Versions, blocks, message_names, parse, shape

HEARTBEAT = """\
# A comment.

api  Heartbeat  12  0-4  flexible 4+  on broker    # a member says that it is alive
  > group_id           string
    group_instance_id  string?  3+  = null
    members            [Member]
      name             string?2+
      ids              [int32]?
  < throttle_time_ms   int32    1+  ignorable
    leader             Node         tag 0
    other              Node?    4   = null
    struct Node
      id               int32        = -1
"""


def test_a_block_is_read_into_its_messages() -> None:
    shapes = parse(HEARTBEAT)
    request, response = shapes["HeartbeatRequest"], shapes["HeartbeatResponse"]
    assert (request.kind, request.key, request.listeners) == (Kind.API, 12, ("broker",))
    assert request.text == "a member says that it is alive"
    assert request.is_flexible(4)
    assert not request.is_flexible(3)

    group_id, instance, members = request.body.fields
    assert (group_id.type, group_id.default, group_id.is_array) == ("string", "", False)
    assert (instance.default, str(instance.versions), 3 in instance.nullable) == (None, "3+", True)
    assert members.default is FRESH
    assert members.struct is not None
    name, ids = members.struct.fields
    assert (1 in name.nullable, 2 in name.nullable) == (False, True)
    assert ids.is_array

    throttle, leader, other = response.body.fields
    assert throttle.ignorable
    assert (leader.tag, leader.default) == (0, None)
    assert leader.struct is other.struct is response.structs["Node"]
    assert response.structs["Node"].fields[0].default == -1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("api  A  1\n", "t:1: list index|t:1: pop from empty list"),
        ("thing  A  1  0\n", "t:1: a block starts with api, data,"),
        ("data  A  0\n    f  int99\n", "A has no struct int99"),
        ("data  A  0\n    f  [int32\n", r"t:2: \[int32 is not a type"),
        ("data  A  0\n    f  int32  sometimes\n", "t:2: sometimes is neither versions nor one of"),
        ("data  A  0\n    f  string  = null\n", "t:2: f is null by default but not nullable"),
        ("\n\ndata  A  0\n    f\n", "t:4: not enough values"),
    ],
)
def test_a_mistake_names_the_line(text: str, error: str) -> None:
    with pytest.raises(ShapeError, match=error):
        parse(text, "t")


def test_every_shape_file_is_named() -> None:
    files = Path(stubs.__file__).with_name("shapes").glob("*.shape")
    assert sorted(NOUNS) == sorted(file.stem for file in files)


def test_every_message_is_there_once() -> None:
    names = message_names()
    assert len(names) == len(set(names)) >= 265
    assert len(all_apis()) >= 89
    assert len(blocks(Kind.METADATA)) >= 25
    assert len(blocks(Kind.GROUP)) >= 22
    assert blocks(Kind.TRANSACTION) == [(0, "TransactionLog")]
    assert [name for _, name in blocks(Kind.SHARE)] == ["ShareSnapshot", "ShareUpdate"]


def test_a_message_that_there_is_not() -> None:
    with pytest.raises(KeyError):
        shape("NoSuchRequest")
    with pytest.raises(AttributeError, match="there is no message NoSuchRequest"):
        messages.NoSuchRequest  # type: ignore[attr-defined]  # noqa: B018
    assert find_api(4711) is None


def test_versions_read_as_they_are_written() -> None:
    assert [str(Versions(3, 9)), str(Versions(2, 2)), str(Versions(5, 0x7FFF))] == ["3-9", "2", "5+"]


def test_the_stub_is_current() -> None:
    stub = Path(stubs.__file__).with_name("messages.pyi").read_text("utf-8")
    assert stub == stubs.render(), "shapes and messages.pyi differ: run `make stubs`"


def test_every_field_of_the_stub_is_a_slot_and_the_other_way_round() -> None:
    for name in message_names():
        message = getattr(messages, name)
        assert message.__slots__ == tuple(field.name for field in message.struct.fields)
        assert message().unknown_tags is None
