"""The states of a transactional id, and how it goes from one to another. PURE.

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -> ONGOING ...
                     -> PREPARE_ABORT  -> COMPLETE_ABORT  -> ONGOING ...

A transaction is decided when PREPARE_COMMIT or PREPARE_ABORT is committed: from then on it can only be completed. It is
complete when every partition that it wrote to has its marker. How a request to end one is answered is in `ENDINGS`, by
the protocol that the producer speaks: of transaction version 2 (KIP-890) the epoch rises with each end, so that a
request that comes late, or again, never ends another transaction than its own (hazard 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class State(IntEnum):
    """By the numbers of the log. The last two are of Kafka's memory only, and in no log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """As Kafka's tools write it: PrepareCommit."""
        return self.name.title().replace("_", "")


STATE_OF_TEXT: Final = {state.text: state for state in State}


class Event(Enum):
    """What happens to a transactional id."""

    INITIALIZED = "its producer starts, or starts again"
    ADDED = "partitions are added to its transaction"
    COMMITTED = "its transaction is to be committed"
    ABORTED = "its transaction is to be aborted, by its producer, by the next one, or because its time is over"
    MARKED = "every partition of its transaction has the marker"
    EXPIRED = "nothing has happened to it for a long time"


NEXT: Final[Mapping[State, Mapping[Event, State]]] = {
    State.EMPTY: {
        Event.INITIALIZED: State.EMPTY,
        Event.ADDED: State.ONGOING,
        Event.ABORTED: State.PREPARE_ABORT,  # of transaction version 2, for the epoch
        Event.EXPIRED: State.DEAD,
    },
    State.ONGOING: {
        Event.INITIALIZED: State.ONGOING,  # only to keep what was prepared (KIP-939); else it is aborted first
        Event.ADDED: State.ONGOING,
        Event.COMMITTED: State.PREPARE_COMMIT,
        Event.ABORTED: State.PREPARE_ABORT,
    },
    State.PREPARE_COMMIT: {Event.MARKED: State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {Event.MARKED: State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {
        Event.INITIALIZED: State.EMPTY,
        Event.ADDED: State.ONGOING,
        Event.ABORTED: State.PREPARE_ABORT,
        Event.EXPIRED: State.DEAD,
    },
    State.COMPLETE_ABORT: {
        Event.INITIALIZED: State.EMPTY,
        Event.ADDED: State.ONGOING,
        Event.ABORTED: State.PREPARE_ABORT,
        Event.EXPIRED: State.DEAD,
    },
}
"""What is not here can't happen."""

PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
COMPLETED: Final = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
AT_REST: Final = (State.EMPTY, *COMPLETED)


class Ending(Enum):
    """How a request to end a transaction is answered."""

    ENDS = "the transaction ends"
    ENDED_SO = "it has ended so before, and the answer of that time was lost"
    UNDER_WAY = "it is being ended so, or the one before it is being ended: CONCURRENT_TRANSACTIONS"
    INVALID = "there is nothing that could be ended so: INVALID_TXN_STATE"
    FENCED = "another producer has taken over, or the epoch is of an older transaction: PRODUCER_FENCED"


class Claim(Enum):
    """Which epoch a request to end a transaction comes with."""

    VERSION_1 = "the current one, of a producer that keeps its epoch"
    CURRENT = "the current one, of a producer whose epoch rises with each end"
    BEFORE = "the one before, of such a producer: it asks again"


_ENDS, _ENDED_SO, _UNDER_WAY, _INVALID, _FENCED = Ending

ENDINGS: Final[Mapping[tuple[State, Claim], tuple[Ending, Ending]]] = {
    # state, claim: to abort, to commit
    (State.EMPTY, Claim.VERSION_1): (_INVALID, _INVALID),
    (State.EMPTY, Claim.CURRENT): (_ENDS, _INVALID),
    (State.EMPTY, Claim.BEFORE): (_FENCED, _FENCED),
    (State.ONGOING, Claim.VERSION_1): (_ENDS, _ENDS),
    (State.ONGOING, Claim.CURRENT): (_ENDS, _ENDS),
    (State.ONGOING, Claim.BEFORE): (_FENCED, _FENCED),
    (State.PREPARE_COMMIT, Claim.VERSION_1): (_INVALID, _UNDER_WAY),
    (State.PREPARE_COMMIT, Claim.CURRENT): (_UNDER_WAY, _UNDER_WAY),
    (State.PREPARE_COMMIT, Claim.BEFORE): (_INVALID, _UNDER_WAY),
    (State.PREPARE_ABORT, Claim.VERSION_1): (_UNDER_WAY, _INVALID),
    (State.PREPARE_ABORT, Claim.CURRENT): (_UNDER_WAY, _UNDER_WAY),
    (State.PREPARE_ABORT, Claim.BEFORE): (_UNDER_WAY, _INVALID),
    (State.COMPLETE_COMMIT, Claim.VERSION_1): (_INVALID, _ENDED_SO),
    (State.COMPLETE_COMMIT, Claim.CURRENT): (_ENDS, _INVALID),
    (State.COMPLETE_COMMIT, Claim.BEFORE): (_INVALID, _ENDED_SO),
    (State.COMPLETE_ABORT, Claim.VERSION_1): (_ENDED_SO, _INVALID),
    (State.COMPLETE_ABORT, Claim.CURRENT): (_ENDS, _INVALID),
    (State.COMPLETE_ABORT, Claim.BEFORE): (_ENDED_SO, _INVALID),
}
