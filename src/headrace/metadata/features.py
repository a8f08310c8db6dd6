"""The features of the cluster that this program knows, and the levels at which a new cluster begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 29),  # 3.3-IV3, the least that Kafka 4 takes, to 4.2-IV1, the last of Kafka 4.2
}
"""Least and greatest level of each: what nodes register with, and what ApiVersions tells clients."""

BOOTSTRAP: Final[Mapping[str, int]] = {METADATA_VERSION: 29}
"""The levels of a cluster that is new."""
