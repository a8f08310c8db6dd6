"""What `headrace doctor` looks at of the metadata log in a folder: that the node is its only voter, as a start needs.

Nothing is opened as a node opens it: that would cut what a crash left torn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headrace.cli.findings import Finding, Level
from headrace.errors import HeadraceError
from headrace.protocol.batch import scan
from headrace.raft.metadata_log import FOLDER, is_formatted, not_alone
from headrace.raft.node.history import voters_in
from headrace.raft.quorum import ReplicaKey, VoterSet
from headrace.storage.disk import Disk
from headrace.storage.identity import MetaProperties

_NAME: Final = re.compile(r"(\d{20})(?:-\d{10}\.checkpoint|\.log)")


def quorum_findings(disk: Disk, identity: MetaProperties) -> Iterator[Finding]:
    if not is_formatted(disk):
        return
    voters = latest_voters(disk)
    # A folder without an id gets one at the start, and then it is no voter's.
    if identity.directory_id is None or not voters.is_only(ReplicaKey(identity.node_id, identity.directory_id)):
        yield Finding(Level.PROBLEM, "quorum", f"No node starts on it. {not_alone(disk.full_path(FOLDER), voters)}")


def latest_voters(disk: Disk) -> VoterSet:
    """Those that are named last, by a checkpoint or in the log; none where nobody is."""
    latest, found = -1, VoterSet()
    for name in disk.names(FOLDER):
        if (match := _NAME.fullmatch(name)) is None:
            continue
        try:
            for batch in scan(disk.read(f"{FOLDER}/{name}"), partial=True):
                for offset, voters in voters_in(batch) if batch.is_control else ():
                    # A checkpoint has offsets of its own, and stands for all before the one in its name.
                    at = offset if name.endswith(".log") else int(match[1]) - 1
                    if at >= latest:
                        latest, found = at, voters
        except HeadraceError:
            continue  # what is torn is mended at the start
    return found
