"""What rich prints, without the spaces that it fills lines with: a pipe has no use for them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def unpadded() -> Iterator[None]:
    """Holds what is printed to anything but a terminal until it is whole."""
    out = sys.stdout
    if out.isatty():
        yield
        return
    encoding, errors = out.encoding or "utf-8", out.errors or "strict"
    held = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors, newline="")
    try:
        with redirect_stdout(held):
            yield
    finally:
        held.seek(0)
        for line in held.read().splitlines():
            out.write(f"{line.rstrip()}\n")
