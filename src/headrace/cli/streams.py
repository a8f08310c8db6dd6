"""The three standard streams as a command needs them: all of them there, and none that a character can break."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Final

ERRORS: Final = "headrace.look-alikes"
_LOOK_ALIKES: Final = {
    **dict(zip("▁▂▃▄▅▆▇█", "_.-=+*%#", strict=True)),
    **dict(zip("▏▎▍▌▋▊▉", "||||###", strict=True)),
    "µ": "u",
    "·": ".",
    "…": "...",
}
"""What we draw and write, for whoever has no such characters."""


def mend() -> None:
    """Before anything opens a file or a socket, which would get the number of a stream that is missing: what is said
    would go there, and libuv ends the process when it closes such a number.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    codecs.register_error(ERRORS, _look_alikes)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ERRORS)


def takes_any_character() -> bool:
    """Whether standard output has a way to write every character that there is."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def _look_alikes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    found = error.object[error.start : error.end]
    return "".join(_LOOK_ALIKES.get(letter) or _escaped(letter) for letter in found), error.end


def _escaped(letter: str) -> str:
    return letter.encode("ascii", "backslashreplace").decode()
