"""A subscription to what clients measure of themselves (KIP-714): a resource of its own, by any name."""

from __future__ import annotations

import re
from typing import Final

from headrace.config.group import Group, integer, words
from headrace.config.setting import Scope
from headrace.errors import Error, Refused

MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client a pattern may be for."""


class ClientMetricsConfig(Group, scope=Scope.CLIENT_METRICS):
    """Which clients send which of their metrics, and how often."""

    interval_ms: int = integer(
        default=300_000,
        least=100,
        most=3_600_000,
        doc="How often a client sends its metrics.",
    )
    metrics: tuple[str, ...] = words(
        default=(),
        doc="The beginnings of the names of the metrics that are wanted, or * for all. Empty wants none.",
    )
    match: tuple[str, ...] = words(
        default=(),
        doc="Which clients are asked: key=regular expression, of client_instance_id, client_id, client_software_name, "
        "client_software_version, client_source_address and client_source_port; all of them must match. Empty asks "
        "every client.",
    )

    def check(self) -> None:
        self.patterns()

    def patterns(self) -> dict[str, str]:
        """The regular expressions by what of a client they are for. Raises Refused for one that is none."""
        found = {}
        for text in self.match:
            key, separator, pattern = text.partition("=")
            key, pattern = key.strip(), pattern.strip()
            if not separator or key not in MATCHED or not pattern or "=" in pattern:
                raise Refused(
                    Error.INVALID_CONFIG,
                    f"match has '{text}', and takes key=regular expression, with one of {', '.join(MATCHED)}.",
                )
            try:
                re.compile(pattern)
            except re.error as error:
                raise Refused(
                    Error.INVALID_CONFIG, f"match has '{text}', which is no regular expression: {error}."
                ) from error
            found[key] = pattern
        return found
