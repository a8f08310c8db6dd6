"""ListPartitionReassignments: which replicas are on their way to other brokers, as the image says."""

from __future__ import annotations

from headrace.metadata.loader import Loader
from headrace.metadata.reassignments import list_reassignments
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request


class Reassignments:
    __slots__ = ("_loader",)

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def list(self, connection: Connection, request: Request) -> m.ListPartitionReassignmentsResponse:
        return list_reassignments(self._loader.image, request.body)
