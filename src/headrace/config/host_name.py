"""What can be the name or the address of a machine. Whether there is one of that name is for the system to say."""

from __future__ import annotations

import re
from typing import Final

LENGTH_MAX: Final = 255
_LABELS: Final = re.compile(r"[0-9A-Za-z_:%-]{1,63}(\.[0-9A-Za-z_:%-]{1,63})*\.?")
"""RFC 1035, with the _ that many a network has, and what IPv6 addresses are written with."""


def is_host_name(text: str) -> bool:
    """Labels of 1 to 63 letters, digits, - and _ with dots between, or an address; also one with letters beyond ASCII.

    Looked up, any other would not be missing but raise UnicodeError.
    """
    if not text.isascii():
        try:
            text = text.encode("idna").decode()
        except UnicodeError:
            return False
    return len(text) <= LENGTH_MAX and _LABELS.fullmatch(text) is not None
