"""When the controller last heard of each broker. PURE.

Nothing of it is in the log: a new controller gives every broker that is not fenced a whole session to be heard of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.metadata.image import Broker

NEVER_MS: Final = 2**63 - 1


class Session:
    __slots__ = ("contact_ms", "epoch", "is_heard", "metadata_offset", "shutdown_offset")

    def __init__(self, epoch: int, contact_ms: int, is_heard: bool) -> None:
        self.epoch = epoch
        self.contact_ms = contact_ms
        self.is_heard = is_heard
        """This controller had word of it itself."""
        self.metadata_offset = -1
        """How far it has come in the metadata log."""
        self.shutdown_offset = -1
        """The end of the log when it got leave to shut down: when all know that, it may go."""


class Sessions:
    __slots__ = ("_sessions", "_timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}

    def begin(self, brokers: Iterable[Broker], now_ms: int) -> None:
        """Of a controller that has just become active."""
        self._sessions = {broker.id: Session(broker.epoch, now_ms, False) for broker in brokers if not broker.is_fenced}

    def heard(self, broker_id: int, epoch: int, now_ms: int, metadata_offset: int = -1) -> Session:
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(epoch, now_ms, True)
        session.is_heard = True
        session.contact_ms = now_ms
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    def lost(self, broker_id: int) -> None:
        """It is gone, whenever it was heard of."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.is_heard = False

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def is_live(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """It was heard of by this controller, in this epoch, within the time-out.

        That it was registered with the controller before does not count: a node that was killed and is back at once
        is not to wait until the session of its dead self has run out.
        """
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.epoch == epoch
            and session.is_heard
            and now_ms < session.contact_ms + self._timeout_ms
        )

    def expired(self, now_ms: int) -> list[int]:
        return [id for id, session in self._sessions.items() if now_ms >= session.contact_ms + self._timeout_ms]

    def deadline_ms(self) -> int:
        contacts = [session.contact_ms for session in self._sessions.values()]
        return min(contacts) + self._timeout_ms if contacts else NEVER_MS

    def metadata_offset(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.metadata_offset
