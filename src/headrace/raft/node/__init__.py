"""The Raft node, in KRaft's form: pull replication (KIP-595), pre-vote (KIP-996), snapshots (KIP-630) and voter sets
with directory ids (KIP-853). PURE.

What happened and the time go in: a message of a peer, a tick, records to append, how far the log is durable. What to
do comes out of `Node.ready`: what to write, then what to send, then how far to apply. Nothing of it may be reordered:
a vote leaves after its quorum state is durable, and a fetch says that what is before its offset is.

`machine` has the node and its transitions, `election` what voters say to become and to stop being leader, `replication`
the fetches of both sides, `snapshots` how a follower gets what the log no longer has.
"""

from headrace.raft.node.effects import (
    Append,
    InstallSnapshot,
    LeaderAndEpoch,
    QuorumState,
    Ready,
    Reply,
    Send,
    Truncate,
    Write,
    WriteSnapshot,
)
from headrace.raft.node.history import History
from headrace.raft.node.machine import Node
from headrace.raft.node.roles import Role
from headrace.raft.node.timing import Timing

__all__ = [
    "Append",
    "History",
    "InstallSnapshot",
    "LeaderAndEpoch",
    "Node",
    "QuorumState",
    "Ready",
    "Reply",
    "Role",
    "Send",
    "Timing",
    "Truncate",
    "Write",
    "WriteSnapshot",
]
