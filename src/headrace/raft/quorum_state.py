"""The file `quorum-state`: what a voter must not forget, as Kafka's JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.raft.node.effects import QuorumState
from headrace.raft.quorum import NO_DIRECTORY, NO_NODE, ReplicaKey
from headrace.storage.disk import Disk, FileVanished
from headrace.storage.identity import id_text, parse_id

QUORUM_STATE: Final = "quorum-state"
_VERSIONS: Final = (0, 1)
"""Kafka writes version 0 where voters have no directory ids; we write 1."""


class QuorumStateDamaged(HeadraceError):
    """A voter that does not know what it has promised must not guess."""


def encode_quorum_state(state: QuorumState) -> bytes:
    voted = state.voted or ReplicaKey(NO_NODE)
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.id,
        "votedDirectoryId": id_text(voted.directory_id),
        "data_version": 1,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def read_quorum_state(disk: Disk, path: str) -> QuorumState:
    """As it was written last, all of it or none; of a node that has never promised anything, the empty state."""
    try:
        content = disk.read(path)
    except FileVanished:
        return QuorumState()
    try:
        return _decode(json.loads(content))
    except (ValueError, TypeError, KeyError) as error:
        raise QuorumStateDamaged(
            f"{disk.full_path(path)} is damaged ({error}); restore it, or remove the node from the voters and format it"
        ) from None


def _decode(fields: Any) -> QuorumState:
    if fields["data_version"] not in _VERSIONS:
        raise ValueError(f"its version is {fields['data_version']}, and only {_VERSIONS} can be read")
    numbers = [fields[name] for name in ("leaderEpoch", "leaderId", "votedId")]
    if not all(type(number) is int and number >= -1 for number in numbers):
        raise ValueError("epoch, leader and vote must be numbers")
    epoch, leader_id, voted_id = numbers
    directory_id = parse_id(fields["votedDirectoryId"]) if "votedDirectoryId" in fields else NO_DIRECTORY
    voted = None if voted_id == NO_NODE else ReplicaKey(voted_id, directory_id)
    return QuorumState(max(epoch, 0), leader_id, voted)
