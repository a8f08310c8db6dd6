"""Which frames of a connection were taken for one that had come before."""

from __future__ import annotations

from typing import Any

import pytest


def noted_takes(monkeypatch: pytest.MonkeyPatch, kind: Any) -> list[bool]:
    """Of each frame that `kind.take` looks at from now on: whether it was taken."""
    found: list[bool] = []
    take = kind.take

    def noted(self: Any, *arguments: Any) -> Any:
        figures = take(self, *arguments)
        found.append(figures is not None)
        return figures

    monkeypatch.setattr(kind, "take", noted)
    return found
