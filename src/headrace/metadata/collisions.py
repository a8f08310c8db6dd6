"""Names that can't both be topics, because they differ in '.' and '_' alone: in metrics they would be one. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.metadata.image import Image
from headrace.metadata.names import folded
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m


class Collisions:
    """The topics whose names could collide, kept beside the image: to look at all of them for each new one is slow."""

    __slots__ = ("_by_folded",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._by_folded: dict[str, dict[str, None]] = {}
        for name in names:
            self._add(name)

    def find(self, name: str) -> str | None:
        """A topic that `name` collides with."""
        if not may_collide(name):
            return None
        return next((other for other in self._by_folded.get(folded(name), ()) if other != name), None)

    def appended(self, before: Image, records: Sequence[Versioned]) -> None:
        for record, _ in records:
            if isinstance(record, m.TopicRecord):
                self._add(record.name)
            elif isinstance(record, m.RemoveTopicRecord):
                self._remove(before.topics[record.topic_id].name)

    def _add(self, name: str) -> None:
        if may_collide(name):
            self._by_folded.setdefault(folded(name), {})[name] = None

    def _remove(self, name: str) -> None:
        names = self._by_folded.get(folded(name))
        if names is not None:
            names.pop(name, None)
            if not names:
                del self._by_folded[folded(name)]


def may_collide(name: str) -> bool:
    return "." in name or "_" in name
