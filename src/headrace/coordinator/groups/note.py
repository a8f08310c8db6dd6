"""A line for the operator's log, as an effect: what decides does not log. PURE."""

from __future__ import annotations

from typing import Final, NamedTuple

REASON_MAX: Final = 255
"""How much of a client's own words is taken."""


class Note(NamedTuple):
    text: str


def in_their_words(reason: str | None) -> str:
    """Why a client does something, if it says so (KIP-800)."""
    return f" ({reason[:REASON_MAX]!r})" if reason else ""
