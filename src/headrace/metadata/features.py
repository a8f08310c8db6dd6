"""The features of the cluster that this program knows, and the levels at which a new cluster begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.raft.quorum import KRAFT_VERSION

METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"
"""At 1, groups may use the new consumer protocol (KIP-848)."""

TRANSACTION_VERSION: Final = "transaction.version"
"""At 1, records of transactions may have tagged fields; at 2, the epoch rises with each end (KIP-890)."""

QUORUM_VERSION: Final = "kraft.version"
"""Of the quorum itself (KIP-853): it is in the log of the voters and in no image, and clients are told of it."""
QUORUM_VERSIONS: Final = (0, KRAFT_VERSION)

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 29),  # 3.3-IV3, the least that Kafka 4 takes, to 4.2-IV1, the last of Kafka 4.2
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""Least and greatest level of each: what nodes register with, and what ApiVersions tells clients."""

BOOTSTRAP: Final[Mapping[str, int]] = {METADATA_VERSION: 29, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
"""The levels of a cluster that is new."""

METADATA_CHANGES: Final = (8, 11, 13, 14, 15, 17, 23)
"""Levels of metadata.version that brought records or fields of records which those before do not know."""

UNKNOWN: Final = (0, 0)
"""The levels at which a feature that is not known changes nothing."""

REQUIRED: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (GROUP_VERSION, 1): {METADATA_VERSION: 22},
}
"""What a level of a feature needs: other features, at these levels at least."""


def unsupported(features: Mapping[str, int]) -> str | None:
    """Which levels of a cluster this program does not know, and what to do; None when it knows them all."""
    found = {name: level for name, level in features.items() if not _is_supported(name, level)}
    if not found:
        return None
    levels = ", ".join(f"{name} at {level} ({_known(name)})" for name, level in found.items())
    commands = []
    for command, is_more in (("downgrade", True), ("upgrade", False)):
        wanted = [name for name, level in found.items() if (level > SUPPORTED.get(name, UNKNOWN)[1]) is is_more]
        options = [f"--feature {name}={SUPPORTED.get(name, UNKNOWN)[1 if is_more else 0]}" for name in wanted]
        if options:
            commands.append(f"kafka-features.sh {command} {' '.join(options)}")
    return (
        f"has features at levels that this program does not support: {levels}; change them with the program that wrote "
        f"it ({', '.join(commands)}), start a program that supports them, or choose another folder."
    )


def _is_supported(name: str, level: int) -> bool:
    least, most = SUPPORTED.get(name, UNKNOWN)
    return least <= level <= most


def _known(name: str) -> str:
    return "which is not known here" if name not in SUPPORTED else "known from {} to {}".format(*SUPPORTED[name])
