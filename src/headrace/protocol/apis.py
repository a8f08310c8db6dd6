"""The APIs that there are shapes for, by key. What a node serves of them is its router's to say."""

from functools import cache

from headrace.protocol import messages
from headrace.protocol.message import Message
from headrace.protocol.shape import Kind, Shape, Versions, blocks, head

API_VERSIONS_KEY = 18


class Api:
    """An API: its messages, and what the wire looks like around them."""

    __slots__ = ("key", "name", "request", "response", "unstable", "versions")

    request: type[Message]
    response: type[Message]

    def __init__(self, key: int, name: str) -> None:
        known = head(Kind.API, name)
        self.key = key
        self.name = name
        self.versions: Versions = known.versions
        self.unstable: Versions = known.unstable
        """Versions that Apache Kafka does not call stable yet."""

    def __getattr__(self, name: str) -> type[Message]:
        """Makes the class of a message when it is first asked for: most APIs of a node are never called."""
        if name not in ("request", "response"):
            raise AttributeError(f"an API has no {name}")
        made: type[Message] = getattr(messages, self.name + name.title())
        setattr(self, name, made)
        return made

    def __repr__(self) -> str:
        return f"<Api {self.name}>"

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
        found = _apis[key] = Api(key, _names()[key])
    return found


def named_api(name: str) -> Api:
    """The API of a name: `Produce`. Raises KeyError for a name that there is not."""
    api = find_api(_keys()[name])
    assert api is not None
    return api


def all_apis() -> list[Api]:
    return [api for key in _names() if (api := find_api(key)) is not None]


_apis: dict[int, Api] = {}


@cache
def _names() -> dict[int, str]:
    return dict(blocks(Kind.API))


@cache
def _keys() -> dict[str, int]:
    return {name: key for key, name in _names().items()}
