"""Which topics regular expressions match (KIP-848: the coordinator resolves them, with RE2's syntax).

Expressions come from clients, so nothing about them may cost much: RE2 matches in linear time, a program is compiled in
bounded memory, and names are matched in steps whose length hangs on the size of the program. What an expression matched
is kept, and follows the topics that come and go, so that a new topic is matched once and not all the old ones again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from headrace.errors import Error, Refused

REGEX_LENGTH_MAX: Final = 4096
PROGRAM_BYTES_MAX: Final = 1 << 19
"""RE2's limit on a program and its caches."""
STEP_NAMES_MAX: Final = 2_000
STEP_WORK: Final = 40_000
"""Names times instructions. A program of more than a hundred instructions may be slow for its size, and gets less."""
SLOW_STEP_WORK: Final = 8_000
SLOW_PROGRAM: Final = 100
JOURNAL_MAX: Final = 1_024
ENTRIES_MAX: Final = 4_096
KEPT_BYTES_MAX: Final = 1 << 24
"""Of programs and of what they matched, in a shard: whoever asks for one expression after the other gets no more memory
than this. What is dropped is made again when it is asked for."""
KEPT_LISTS_MIN: Final = 64
"""Where there are very many topics, lists of all of them have room beyond that."""
_INSTRUCTION_BYTES: Final = 20
_NAME_BYTES: Final = 8


class _Entry:
    """What one expression matches: everything up to a point of the journal, or on its way there."""

    __slots__ = ("matched", "pattern", "rest", "seen", "size_bytes", "topics")

    def __init__(self, pattern: Any, names: Iterator[str], seen: int) -> None:
        self.pattern = pattern
        self.rest: Iterator[str] | None = names
        self.matched: dict[str, None] = {}
        self.seen = seen
        self.topics: tuple[str, ...] = ()
        self.size_bytes = 0
        """As it was when it was last asked for."""

    def measure(self) -> int:
        names = max(len(self.matched), len(self.topics))
        self.size_bytes = self.pattern.programsize * _INSTRUCTION_BYTES + names * _NAME_BYTES
        return self.size_bytes

    def finish(self) -> None:
        """Lists of names are kept in a form that takes little."""
        self.topics = tuple(sorted(self.matched))
        self.matched = {}


class Resolver:
    """The expressions of all the groups of a shard."""

    __slots__ = ("_entries", "_first", "_journal", "_names", "_size_bytes")

    def __init__(self) -> None:
        self._names: Mapping[str, bytes] = {}
        self._journal: deque[tuple[str, bool]] = deque()
        """Topics that came (True) and went, since number `_first`."""
        self._first = 0
        self._entries: dict[str, _Entry] = {}
        self._size_bytes = 0
        """Of all entries."""

    def reset(self, names: Mapping[str, bytes]) -> None:
        """Another list of topics, of which nothing is known. It must not change: it is walked in steps."""
        self._names = names
        self._entries.clear()
        self._size_bytes = 0
        self._first += len(self._journal)
        self._journal.clear()

    def change(self, names: Mapping[str, bytes], came: list[str], went: list[str]) -> None:
        self._names = names
        for name in went:
            self._journal.append((name, False))
        for name in came:
            self._journal.append((name, True))
        while len(self._journal) > JOURNAL_MAX:
            self._journal.popleft()
            self._first += 1

    def topics(self, regex: str) -> tuple[str, ...] | None:
        """What it matches, ascending. None when there are so many topics that more steps are needed: call it again.

        Raises INVALID_REGULAR_EXPRESSION.
        """
        entry = self._entries.pop(regex, None)
        if entry is not None:
            self._size_bytes -= entry.size_bytes
        if entry is None or entry.seen < self._first:
            entry = _Entry(compiled(regex), iter(self._names), self._first + len(self._journal))
        if entry.rest is not None:
            _step(entry)
            if entry.rest is None:
                entry.finish()
        if entry.rest is None:
            self._catch_up(entry)
        self._keep(regex, entry)
        return None if entry.rest is not None else entry.topics

    def _keep(self, regex: str, entry: _Entry) -> None:
        """At the end: those that nobody asks for are at the front, and go first."""
        entries = self._entries
        entries[regex] = entry
        self._size_bytes += entry.measure()
        most_bytes = KEPT_BYTES_MAX + KEPT_LISTS_MIN * _NAME_BYTES * len(self._names)
        while len(entries) > ENTRIES_MAX or (self._size_bytes > most_bytes and len(entries) > 1):
            self._size_bytes -= entries.pop(next(iter(entries))).size_bytes

    def _catch_up(self, entry: _Entry) -> None:
        if entry.seen == self._first + len(self._journal):
            return
        changes = {
            name: is_there
            for name, is_there in islice(self._journal, entry.seen - self._first, None)
            if not is_there or entry.pattern.fullmatch(name) is not None
        }
        entry.seen = self._first + len(self._journal)
        if changes:
            entry.matched = dict.fromkeys(entry.topics)
            for name, is_there in changes.items():
                if is_there:
                    entry.matched[name] = None
                else:
                    entry.matched.pop(name, None)
            entry.finish()


def compiled(regex: str) -> Any:
    """RE2's program for it. Raises INVALID_REGULAR_EXPRESSION."""
    import re2  # a hundredth of a second and a library, which most nodes never need

    if len(regex) > REGEX_LENGTH_MAX:
        raise Refused(
            Error.INVALID_REGULAR_EXPRESSION,
            f"The regular expression has {len(regex)} characters, and {REGEX_LENGTH_MAX} is the most.",
        )
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return re2.compile(regex, options)
    except re2.error as wrong:
        reason = wrong.args[0].decode(errors="replace") if isinstance(wrong.args[0], bytes) else str(wrong)
        raise Refused(
            Error.INVALID_REGULAR_EXPRESSION, f"The regular expression {regex[:200]!r} is not valid: {reason}."
        ) from None


def _step(entry: _Entry) -> None:
    assert entry.rest is not None
    size = max(entry.pattern.programsize, 1)
    count = (STEP_WORK if size <= SLOW_PROGRAM else SLOW_STEP_WORK) // size
    count = min(max(count, 4), STEP_NAMES_MAX)
    names = list(islice(entry.rest, count))
    matches = entry.pattern.fullmatch
    for name in names:
        if matches(name) is not None:
            entry.matched[name] = None
    if len(names) < count:
        entry.rest = None
