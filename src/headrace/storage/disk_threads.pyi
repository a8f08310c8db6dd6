from typing import Final

__all__ = [
    "COMPILED",
    "FILES_MAX",
    "MESSAGES_MAX",
    "ask_range",
    "ask_sync",
    "hear",
    "serve_headroom",
    "serve_syncs",
    "serve_write_backs",
]

COMPILED: bool
FILES_MAX: Final = 13
MESSAGES_MAX: Final = 64

def ask_sync(pipe: int, descriptors: list[int], files: int, at_once_from: int, file_system: int) -> None: ...
def hear(pipe: int) -> tuple[int, int, int, int, int, int] | None: ...
def ask_range(pipe: int, descriptor: int, position: int, size: int) -> bool: ...
def serve_syncs(asked_pipe: int, told_pipe: int, sync_beats: bytearray) -> None: ...
def serve_write_backs(asked_pipe: int, sync_beats: bytearray) -> None: ...
def serve_headroom(asked_pipe: int, slow_beats: bytearray, is_free: bytearray) -> None: ...
