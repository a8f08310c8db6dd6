"""What was asked of whom and is not answered yet: one request a peer. PURE."""

from __future__ import annotations

from headrace.protocol.message import Message


class Requests:
    """Answers that nobody waits for any more are told apart by the request that they belong to."""

    __slots__ = ("_backoff_ms", "_sent", "_timeout_ms")

    def __init__(self, timeout_ms: int, backoff_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._sent: dict[int, tuple[Message | None, int]] = {}
        """By peer: the request, or None after a failure, and until when the peer is not asked again."""

    def may_send(self, peer: int, now_ms: int) -> bool:
        return peer not in self._sent or now_ms >= self._sent[peer][1]

    def sent(self, peer: int, request: Message, now_ms: int) -> None:
        self._sent[peer] = request, now_ms + self._timeout_ms

    def answered(self, peer: int, request: Message) -> bool:
        """False for an answer to something that is no longer of interest."""
        sent = self._sent.get(peer)
        if sent is None or sent[0] is not request:
            return False
        del self._sent[peer]
        return True

    def failed(self, peer: int, now_ms: int) -> None:
        self._sent[peer] = None, now_ms + self._backoff_ms

    def expire(self, now_ms: int) -> None:
        """Gives up on those whose time is over."""
        for peer in [peer for peer, (_, until) in self._sent.items() if now_ms >= until]:
            del self._sent[peer]

    def is_any_under_way(self) -> bool:
        return any(request is not None for request, _ in self._sent.values())

    def next_ms(self) -> int | None:
        """When the first of them is over."""
        return min((until for _, until in self._sent.values()), default=None)

    def forget(self) -> None:
        """After a change of epoch or role: whatever was asked before does not matter."""
        self._sent.clear()
