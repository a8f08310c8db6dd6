# cython: language_level=3, annotation_typing=False, nonecheck=True
"""What a read of a log gives: pieces of files, to be sent without a copy, or their bytes."""

from __future__ import annotations

from headrace.storage.disk import File


class Piece:
    """A stretch of a segment's file."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    def __repr__(self) -> str:
        return f"<Piece {self.file.path} bytes {self.position}..{self.position + self.size_bytes}>"


class Fetched:
    """Batches as they lie, from the one that holds the offset asked for; the last may be cut by the byte budget.

    As a part of a large batch is no use to anybody, it is left out where the index knows that the batch begins.

    The files stay readable until `release`, whatever becomes of their segments; whoever got this releases it, once.
    """

    __slots__ = ("end_offset", "found_bytes", "pieces", "sent_offset", "size_bytes")

    def __init__(self, pieces: list[Piece], size_bytes: int, end_offset: int) -> None:
        self.pieces = pieces
        self.size_bytes = size_bytes
        self.found_bytes = size_bytes
        """With what was left out, all of which was within the budget."""
        self.end_offset = end_offset
        """No record in here is at or after it: for aborted transactions, and no more exact than the index."""
        self.sent_offset = end_offset
        """The same, and where something was cut rather too small, for who counts."""

    def hold(self) -> None:
        """Once more: then it is to be released twice."""
        for piece in self.pieces:
            piece.file.hold()

    def keep_from_sends(self) -> None:
        """To send from these files failed."""
        for piece in self.pieces:
            piece.file.is_sendable = False

    def release(self) -> None:
        for piece in self.pieces:
            piece.file.release()

    def take(self) -> bytes:
        """The bytes, and nothing to release any more."""
        pieces = self.pieces
        try:
            if len(pieces) == 1:
                return pieces[0].file.read(pieces[0].position, pieces[0].size_bytes)
            return b"".join(piece.file.read(piece.position, piece.size_bytes) for piece in pieces)
        finally:
            self.release()
