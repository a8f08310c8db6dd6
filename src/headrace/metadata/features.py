"""The features of the cluster that this program knows, and the levels at which a new cluster begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"
"""At 1, groups may use the new consumer protocol (KIP-848)."""

TRANSACTION_VERSION: Final = "transaction.version"
"""At 1, records of transactions may have tagged fields; at 2, the epoch rises with each end (KIP-890)."""

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

REQUIRED: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (GROUP_VERSION, 1): {METADATA_VERSION: 22},
}
"""What a level of a feature needs: other features, at these levels at least."""
