"""What a topic may be called."""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import Error, Refused

NAME_LENGTH_MAX: Final = 249
"""A folder is named after the topic and the partition, and file systems take 255 bytes."""
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
METADATA: Final = "__cluster_metadata"


def check_name(name: str) -> None:
    """Refuse what no topic can be called."""
    if not name:
        raise _invalid("a topic needs a name")
    if name in (".", ".."):
        raise _invalid(f"'{name}' can't be the name of a topic")
    if len(name) > NAME_LENGTH_MAX:
        raise _invalid(f"the name of a topic has at most {NAME_LENGTH_MAX} characters, and this one has {len(name)}")
    if not _LEGAL.fullmatch(name):
        raise _invalid(f"'{name}' can't be the name of a topic: only letters, digits, '.', '_' and '-' can be in it")
    if name == METADATA:
        raise _invalid(f"'{name}' is the metadata log, and can't be a topic")


def folded(name: str) -> str:
    """Two topics of which this is the same can't both be: in the names of metrics they would be one."""
    return name.replace(".", "_")


def _invalid(what: str) -> Refused:
    return Refused(Error.INVALID_TOPIC_EXCEPTION, f"{what[0].upper()}{what[1:]}.")
