"""What verifying found: for each partition what it holds, and what is wrong, where, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from headrace.named_tuple import NamedTuple

PROBLEMS_MAX: Final = 100
"""Of one partition. A disk that rots has more than anybody reads; the rest are counted."""


class Severity(StrEnum):
    DAMAGE = "damage"
    """Records are lost, can't be read or are not what they should be."""
    REPAIRABLE = "repairable"
    """Something beside the records is wrong; a node can make it anew from them."""
    NOTE = "note"
    """Not wrong: what an unclean stop leaves, or work that waits for a node."""


class Problem(NamedTuple):
    severity: Severity
    path: str
    """From the root of the disk."""
    position: int | None
    """The first byte that is wrong; None where it is the whole file."""
    what: str
    advice: str
    """What the operator can do; empty where nothing needs to be done."""


class Report:
    """One partition, or the log directory itself under the name ""."""

    __slots__ = (
        "batches",
        "counts",
        "end_offset",
        "name",
        "problems",
        "records",
        "segments",
        "size_bytes",
        "start_offset",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.segments = 0
        self.size_bytes = 0
        self.batches = 0
        self.records = 0
        self.start_offset: int | None = None
        self.end_offset: int | None = None
        self.problems: list[Problem] = []
        self.counts = dict.fromkeys(Severity, 0)

    @property
    def is_sound(self) -> bool:
        return not self.counts[Severity.DAMAGE] and not self.counts[Severity.REPAIRABLE]

    @property
    def left_out(self) -> int:
        """How many problems are counted and not told."""
        return sum(self.counts.values()) - len(self.problems)

    def add(self, severity: Severity, path: str, what: str, advice: str = "", position: int | None = None) -> None:
        self.counts[severity] += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(severity, path, position, what, advice))
        elif severity is Severity.DAMAGE:  # which must not be left out for the sake of lesser ones
            for number, problem in enumerate(self.problems):
                if problem.severity is not Severity.DAMAGE:
                    del self.problems[number]
                    self.problems.append(Problem(severity, path, position, what, advice))
                    return

    def damage(self, path: str, what: str, advice: str, position: int | None = None) -> None:
        self.add(Severity.DAMAGE, path, what, advice, position)

    def repairable(self, path: str, what: str, advice: str, position: int | None = None) -> None:
        self.add(Severity.REPAIRABLE, path, what, advice, position)

    def note(self, path: str, what: str, advice: str = "", position: int | None = None) -> None:
        self.add(Severity.NOTE, path, what, advice, position)
