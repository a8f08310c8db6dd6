"""The APIs that there are shapes for, by key. What a node serves of them is its router's to say."""

from __future__ import annotations

from functools import cache

from headrace.plain import plain
from headrace.protocol import messages
from headrace.protocol.message import Message
from headrace.protocol.shape import Kind, Shape, Versions, blocks, shape

API_VERSIONS_KEY = 18


@plain
class Api:
    """An API: its messages, and what the wire looks like around them."""

    key: int
    name: str
    versions: Versions
    request: type[Message]
    response: type[Message]

    @property
    def shape(self) -> Shape:
        return self.request.shape

    def request_header_version(self, version: int) -> int:
        return 2 if self.request.shape.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        # A client that asks for a version which the server does not know must be able to read the answer (KIP-511).
        if self.key == API_VERSIONS_KEY:
            return 0
        return 1 if self.response.shape.is_flexible(version) else 0


def find_api(key: int) -> Api | None:
    """The API of a key, or None for a key that nobody uses."""
    found = _apis.get(key)
    if found is None and key in _names():
        found = _apis[key] = _make(key, _names()[key])
    return found


def all_apis() -> list[Api]:
    return [api for key in _names() if (api := find_api(key)) is not None]


_apis: dict[int, Api] = {}


@cache
def _names() -> dict[int, str]:
    return dict(blocks(Kind.API))


def _make(key: int, name: str) -> Api:
    return Api(
        key=key,
        name=name,
        versions=shape(name + "Request").versions,
        request=getattr(messages, name + "Request"),
        response=getattr(messages, name + "Response"),
    )
