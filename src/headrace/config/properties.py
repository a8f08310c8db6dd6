"""Java's properties files, as Kafka's tools and people have them: server.properties."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headrace.errors import HeadraceError

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")


def parse_properties(content: bytes) -> dict[str, str]:
    """Names and values; of a name that comes twice, the last. Bytes are ISO 8859-1, and anything else is escaped.

    Raises HeadraceError, also for what nobody wrote as a text: every line of it would be some name.
    """
    text = content.decode("iso-8859-1")
    if odd := _NO_TEXT.search(text):
        number = text.count("\n", 0, odd.start()) + 1
        raise HeadraceError(f"line {number} holds the byte 0x{ord(odd[0]):02x}, so this is no properties file.")
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        found[_unescape(name)] = _unescape(value)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Without comments and blank lines, and with the lines joined that a backslash continues."""
    held = ""
    is_continued = False
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANK)
        if not is_continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        is_continued = backslashes % 2 == 1
        held += line[:-1] if is_continued else line
        if not is_continued:
            if held:
                yield held
            held = ""
    if held:
        yield held


def _split(line: str) -> tuple[str, str]:
    """At the first =, : or blank that is not escaped; blanks around it, and one = or : after blanks, go too."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter != "\\":
            out.append(letter)
            continue
        if position == len(text):
            break
        letter = text[position]
        position += 1
        if letter == "u":
            digits = text[position : position + 4]
            try:
                if len(digits) < 4 or not digits.isalnum():
                    raise ValueError
                out.append(chr(int(digits, 16)))
            except ValueError:
                # Not what follows: the value may be a secret.
                raise HeadraceError("\\u is no character here: four hexadecimal digits follow it.") from None
            position += 4
        else:
            out.append(_ESCAPES.get(letter, letter))
    # Two escapes may be one character beyond the first 65,536.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
