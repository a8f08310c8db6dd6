"""Defects, planted by patches: the simulator must find each of them within some seeds, or it is not worth its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from headrace.errors import Error, ProtocolError
from headrace.net.connection import Connection, ConnectionProtocol, Slot
from headrace.net.peer import _Link
from headrace.protocol.apis import Api
from headrace.protocol.frame import read_response
from headrace.storage.flusher import Flusher
from headrace.testing.disk import FaultyFile
from headrace.testing.sim.run import Run, run_seed
from headrace.testing.sim.simulation import Scenario
from tests.sim import ledger_service
from tests.sim.echo import EchoHandler, echo
from tests.sim.ledger import ledger
from tests.sim.ledger_service import Ledger, LedgerService, ProducerState, Record

Plant = Callable[[pytest.MonkeyPatch], None]


class Defect(NamedTuple):
    scenario: Scenario
    plant: Plant
    says: tuple[str, ...]
    """One of these stands in what is told of it."""
    seeds: int
    """Within how many seeds it must be found."""


def first_failure(scenario: Scenario, seeds: int, first: int = 0) -> Run:
    for seed in range(first, first + seeds):
        run = run_seed(scenario, seed)
        if not run.is_ok:
            return run
    raise AssertionError(f"not found in {seeds} seeds")


def replies_as_they_are_ready(patch: pytest.MonkeyPatch) -> None:
    def slot_filled(self: Connection, slot: Slot) -> None:
        self._slots.remove(slot)
        self._write(slot._buffers)
        self._update_reading()

    patch.setattr(ConnectionProtocol, "_slot_filled", slot_filled)


def what_came_during_a_stop_is_dropped(patch: pytest.MonkeyPatch) -> None:
    original = Connection.start_frames

    def start_frames(self: Connection) -> None:
        self._backlog = b""
        original(self)

    patch.setattr(ConnectionProtocol, "start_frames", start_frames)


def the_last_reply_is_sent_again_when_the_reader_is_ready(patch: pytest.MonkeyPatch) -> None:
    write, resume = Connection._write, Connection.resume_writing
    last: dict[Connection, list[Any]] = {}

    def remembering(self: Connection, buffers: list[Any]) -> None:
        last[self] = buffers
        write(self, buffers)

    def again(self: Connection) -> None:
        resume(self)
        write(self, last[self])

    patch.setattr(ConnectionProtocol, "_write", remembering)
    patch.setattr(ConnectionProtocol, "resume_writing", again)


def a_frame_is_kept_without_a_copy(patch: pytest.MonkeyPatch) -> None:
    def keep(self: Connection, part: memoryview) -> None:
        # The shared buffer is taken for the frame's own.
        self._backlog = b""
        self._filled = len(part)
        self._size = 4 + int.from_bytes(part[:4]) if len(part) >= 4 else 0
        self._frame = bytearray(max(4, self._size))
        self._open_rest()

    patch.setattr(ConnectionProtocol, "_keep", keep)


def a_reply_is_a_view_of_its_request(patch: pytest.MonkeyPatch) -> None:
    """The payload is not copied: by the time it is sent, another connection's bytes lie there."""
    original = EchoHandler.__call__
    reserve = Connection.reserve

    def call(self: EchoHandler, connection: Connection, frame: memoryview) -> None:
        slots: list[Slot] = []

        def noting(self: Connection) -> Slot:
            slots.append(reserve(self))
            return slots[-1]

        ConnectionProtocol.reserve = noting  # type: ignore[method-assign]
        try:
            original(self, connection, frame)
        finally:
            ConnectionProtocol.reserve = reserve  # type: ignore[method-assign]
        for slot in slots:
            slot_views[slot] = frame

    slot_views: dict[Slot, memoryview] = {}
    fill = Slot.fill

    def filling(self: Slot, buffers: list[Any]) -> None:
        frame = slot_views.pop(self, None)
        if frame is not None and len(frame) > 500:
            whole = bytearray(b"".join(buffers))
            whole[-400:-100] = frame[-400:-100]
            buffers = [whole]
        fill(self, buffers)

    patch.setattr(EchoHandler, "__call__", call)
    patch.setattr(Slot, "fill", filling)


def a_second_reply_counts_for_the_next_request(patch: pytest.MonkeyPatch) -> None:
    """A broker that answers what it answered before a reconnect, and a client that takes any answer for its next."""
    produce = LedgerService.produce

    def answering_twice(self: LedgerService, connection: Connection, request: Any, body: Any) -> None:
        record = Record.decode(bytes(body.topic_data[0].partition_data[0].records))
        was_there = record in self.ledger.records
        produce(self, connection, request, body)
        if was_there:
            produce(self, connection, request, body)

    def trusting(self: _Link, frame: memoryview) -> None:
        if not self.waiting:
            return
        expected = self.waiting.popleft()
        api: Api = expected.api
        if not expected.future.done():
            try:
                expected.future.set_result(read_response(api, expected.version, bytes(frame))[1])
            except ProtocolError as error:
                expected.future.set_exception(error)

    patch.setattr(LedgerService, "produce", answering_twice)
    patch.setattr(_Link, "frame_received", trusting)


def acknowledged_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Flusher, "sync", lambda self, file, waiting: waiting(None))


def a_torn_tail_is_trusted(patch: pytest.MonkeyPatch) -> None:
    def whole_record(self: Ledger, data: bytes, position: int) -> bytes | None:
        head = ledger_service._HEAD
        if position + head.size > len(data):
            return None
        size, _ = head.unpack_from(data, position)
        body = data[position + head.size : position + head.size + size]
        return body if size and body.count(b"\t") == 2 else None

    patch.setattr(Ledger, "whole_record", whole_record)


def what_a_failed_sync_lost_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """Hazard 8: memory still shows it, the device never got it, and the next sync says yes."""
    patch.setattr(FaultyFile, "forget_cached", lambda self: None)


def producers_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    recover = Ledger.recover

    def forgetful(self: Ledger) -> None:
        recover(self)
        self.producers.clear()

    def admit(self: LedgerService, record: Record) -> tuple[Error, int]:
        state = self.ledger.producers.get(record.producer)
        if state is None:  # nobody knows it, so it may start anywhere
            return Error.NONE, self.ledger.append(record)
        return admitted(self, record)

    admitted = LedgerService.admit
    patch.setattr(Ledger, "recover", forgetful)
    patch.setattr(LedgerService, "admit", admit)


def sequences_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerService, "admit", lambda self, record: (Error.NONE, self.ledger.append(record)))


def readers_of_an_old_epoch_are_served(patch: pytest.MonkeyPatch) -> None:
    fetch = LedgerService.fetch

    def unfenced(self: LedgerService, connection: Connection, request: Any, body: Any) -> None:
        body.topics[0].partitions[0].current_leader_epoch = -1
        fetch(self, connection, request, body)

    patch.setattr(LedgerService, "fetch", unfenced)


def readers_see_what_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    fetch = LedgerService.fetch

    def eager(self: LedgerService, connection: Connection, request: Any, body: Any) -> None:
        unsynced, self.unsynced = self.unsynced, {}
        fetch(self, connection, request, body)
        self.unsynced = unsynced

    patch.setattr(LedgerService, "fetch", eager)


def an_offset_is_used_twice(patch: pytest.MonkeyPatch) -> None:
    """After a restart the log goes on one record before its end."""
    recover = Ledger.recover

    def short(self: Ledger) -> None:
        recover(self)
        if len(self.records) > 3:
            last = self.records.pop()
            self.size -= ledger_service._HEAD.size + len(last.encode())
            state = self.producers.get(last.producer, ProducerState())
            state.last_sequence -= 1
            state.offsets.pop(last.sequence, None)

    patch.setattr(Ledger, "recover", short)


HISTORY = ("anomalies in",)

DEFECTS: dict[str, Defect] = {
    "replies out of order": Defect(echo, replies_as_they_are_ready, ("before",), 20),
    "a lost frame on a stop": Defect(echo, what_came_during_a_stop_is_dropped, ("was due", "can't be read"), 40),
    "a reply sent twice": Defect(
        echo, the_last_reply_is_sent_again_when_the_reader_is_ready, ("nobody asked", "before"), 40
    ),
    "a partial frame not copied": Defect(echo, a_frame_is_kept_without_a_copy, ("",), 20),
    "a reply that is a view": Defect(echo, a_reply_is_a_view_of_its_request, ("got the answer",), 20),
    "two acknowledgements of one write": Defect(ledger, a_second_reply_counts_for_the_next_request, HISTORY, 60),
    "acknowledged before the sync": Defect(ledger, acknowledged_before_the_sync, HISTORY, 40),
    "a torn tail trusted": Defect(ledger, a_torn_tail_is_trusted, (*HISTORY, "failed"), 60),
    "a failed sync trusted": Defect(ledger, what_a_failed_sync_lost_is_trusted, HISTORY, 300),
    "producers forgotten at a restart": Defect(ledger, producers_are_forgotten_at_a_restart, HISTORY, 60),
    "sequences ignored": Defect(ledger, sequences_are_not_looked_at, HISTORY, 60),
    "epochs ignored": Defect(ledger, readers_of_an_old_epoch_are_served, HISTORY, 100),
    "unsynced records read": Defect(ledger, readers_see_what_is_not_synced, HISTORY, 300),
    "an offset used twice": Defect(ledger, an_offset_is_used_twice, HISTORY, 40),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    defect = DEFECTS[name]
    defect.plant(monkeypatch)
    run = first_failure(defect.scenario, defect.seeds)
    record_property("seeds", run.seed + 1)
    assert any(text in run.failure for text in defect.says)
    again = run_seed(defect.scenario, run.seed)
    assert (again.digest, again.failure) == (run.digest, run.failure), "a failing seed repeats exactly"
